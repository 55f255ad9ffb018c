"""gRPC over TLS."""

import socket
import ssl
from pathlib import Path

import grpc
import pytest

from certificates import Authority
from grpc_serving import DEADLINE_S, LOOPS, served
from tailrace.delivery.grpc.call import Method, Service, prefixed
from tailrace.delivery.grpc.http2.options import TransportOptions
from tailrace.delivery.tls import TlsConfig, tls_context

ECHO, COUNT = "/test.Test/Echo", "/test.Test/Count"


async def echo(call, message):
    return message


async def count(call, message):
    for number in range(int(message)):
        await call.write(prefixed(b"%d" % number + bytes(10_000)))


SERVICE = Service("test.Test", {"Echo": Method(unary=echo), "Count": Method(stream=count)})


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def files(authority):
    return authority.sign("server")


def context(files, client_ca=""):
    return tls_context(TlsConfig(*files, client_ca), ["h2"])


@pytest.fixture(params=LOOPS)
def server(request, files):
    with served([SERVICE], loop=request.param, tls=context(files)) as server:
        yield server


def channel(server, authority, client=None):
    private = {}
    if client is not None:
        certificate, key = client
        private = {"private_key": Path(key).read_bytes(), "certificate_chain": Path(certificate).read_bytes()}
    credentials = grpc.ssl_channel_credentials(Path(authority.file).read_bytes(), **private)
    return grpc.secure_channel(server.address, credentials)


def test_calls_and_streams_work(server, authority):
    with channel(server, authority) as secure:
        assert secure.unary_unary(ECHO)(b"x" * 3_000_000, timeout=DEADLINE_S) == b"x" * 3_000_000
        read = list(secure.unary_stream(COUNT)(b"500", timeout=DEADLINE_S))
        assert read == [b"%d" % number + bytes(10_000) for number in range(500)]


def test_who_speaks_in_clear_is_closed_and_the_log_stays_silent(server, authority, caplog):
    with grpc.insecure_channel(server.address) as clear, pytest.raises(grpc.RpcError) as caught:
        clear.unary_unary(ECHO)(b"x", timeout=DEADLINE_S)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    with socket.create_connection(("127.0.0.1", server.port), timeout=DEADLINE_S) as garbage:
        garbage.sendall(b"\x00" * 1000)
        while garbage.recv(1000):
            pass
    with channel(server, authority) as secure:
        assert secure.unary_unary(ECHO)(b"x", timeout=DEADLINE_S) == b"x"
    assert caplog.records == []


def test_who_does_not_trust_the_authority_does_not_connect(server, tmp_path):
    with channel(server, Authority(tmp_path)) as secure, pytest.raises(grpc.RpcError) as caught:
        secure.unary_unary(ECHO)(b"x", timeout=DEADLINE_S)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


def test_a_handshake_that_does_not_come_is_not_waited_for(files):
    with (
        served([SERVICE], tls=context(files), options=TransportOptions(handshake_s_max=0.2)) as server,
        socket.create_connection(("127.0.0.1", server.port), timeout=DEADLINE_S) as silent,
    ):
        assert silent.recv(1) == b""


def test_only_http2_is_offered(server, authority):
    client = ssl.create_default_context(cafile=authority.file)
    client.set_alpn_protocols(["http/1.1", "h2"])
    with (
        socket.create_connection(("127.0.0.1", server.port), timeout=DEADLINE_S) as plain,
        client.wrap_socket(plain, server_hostname="127.0.0.1") as secure,
    ):
        assert secure.selected_alpn_protocol() == "h2"


def test_clients_without_a_certificate_are_refused_where_one_is_asked_for(files, authority):
    with served([SERVICE], tls=context(files, authority.file)) as server:
        with channel(server, authority, authority.sign("client", client=True)) as known:
            assert known.unary_unary(ECHO)(b"x", timeout=DEADLINE_S) == b"x"
        with channel(server, authority) as unknown, pytest.raises(grpc.RpcError) as caught:
            unknown.unary_unary(ECHO)(b"x", timeout=DEADLINE_S)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
