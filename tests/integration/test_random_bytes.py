"""Random bytes on each port and after each handshake, also inside TLS: the server stays up, and logs nothing."""

import asyncio
import os
import random
import socket
import ssl
from contextlib import suppress

import pytest

import junk
from certificates import Authority
from grpc_serving import LOOPS, PREFACE, SETTINGS, Bare, frame, served
from tailrace.delivery.grpc.http2.options import TransportOptions
from tailrace.delivery.tls import TlsConfig, tls_context
from web import DEADLINE_S, web

LONG = bool(os.environ.get("LONG_TESTS"))
ROUNDS = 500 if LONG else 30

pytestmark = pytest.mark.timeout(1800 if LONG else 120)  # long rounds take minutes on a busy machine
HANDSHAKE_S_MAX = 0.3

HTTP = {
    "junk": (b"", junk.junk),
    "junk in a head": (junk.HEAD, junk.junk),
    "junk on a WebSocket": (junk.UPGRADE, junk.junk),
    "requests": (b"", junk.requests),
    "messages": (junk.UPGRADE, junk.messages),
    "HTTP/2": (b"", junk.frames),
}
GRPC = {
    "junk": lambda rng: junk.junk(rng),
    "junk in frames": lambda rng: (
        PREFACE + frame(SETTINGS) + junk.junk(rng) + frame(rng.randrange(12), 0, 1, junk.junk(rng))
    ),
    "frames": junk.frames,
    "HTTP/1": junk.requests,
}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("tls")).sign("server")


def server_context(files, protocol, *, secure=True):
    return tls_context(TlsConfig(*files), [protocol]) if secure else None


def client_context(protocol="http/1.1", version=None):
    """Return the context of a client that trusts anybody."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols([protocol])
    if version is not None:
        context.maximum_version = version
    return context


@pytest.mark.parametrize("secure", [False, True], ids=["clear", "TLS"])
@pytest.mark.parametrize("kind", HTTP)
async def test_the_http_port_outlives_random_bytes(kind, secure, files, caplog):
    rng = random.Random(12)
    front, make = HTTP[kind]
    tls = client_context() if secure else None
    async with web(server={"tls": server_context(files, "http/1.1", secure=secure)}) as world:
        for _ in range(ROUNDS):
            reader, writer = await asyncio.open_connection(world.address.host, world.address.port, ssl=tls)
            with suppress(OSError):
                writer.write(front)
                if front == junk.UPGRADE:
                    assert (await reader.readuntil(b"\r\n\r\n")).split()[1] == b"101"
                writer.write(make(rng))
                if not secure:
                    writer.write_eof()
                    async with asyncio.timeout(DEADLINE_S):
                        await reader.read()
                await writer.drain()
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()
        assert (await world.client.get("/health")).status_code == 200
    assert [record.getMessage() for record in caplog.records if record.levelname in ("WARNING", "ERROR")] == []


class Secured(Bare):
    """A client that sends whatever it is told to inside TLS."""

    def __init__(self, server):
        super().__init__(server, preface=False)
        self.socket = client_context("h2").wrap_socket(self.socket)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("secure", [False, True], ids=["clear", "TLS"])
@pytest.mark.parametrize("kind", GRPC)
def test_the_grpc_port_outlives_random_bytes(kind, secure, loop, files, caplog):
    rng = random.Random(12)
    with served(tls=server_context(files, "h2", secure=secure), loop=loop) as server:
        opened = Secured if secure else lambda server: Bare(server, preface=False)
        for _ in range(ROUNDS):
            with opened(server) as client, suppress(OSError):
                client.send(GRPC[kind](rng))
        with opened(server) as client:
            client.send(PREFACE, frame(SETTINGS))
            client.await_frame(SETTINGS)
    assert caplog.records == []


def hello(version=None):
    """Return the first flight of a TLS handshake."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_context("h2", version).wrap_bio(incoming, outgoing)
    with suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


class Handshake:
    """A TLS handshake over a socket that we can leave, or disturb, at any of its steps."""

    def __init__(self, port, version=None):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.client = client_context("h2", version).wrap_bio(self._incoming, self._outgoing)

    def finish(self):
        """Go through with it."""
        while True:
            try:
                self.client.do_handshake()
                self.socket.sendall(self._outgoing.read())
                return
            except ssl.SSLWantReadError:
                self.socket.sendall(self._outgoing.read())
                self._incoming.write(self.socket.recv(1 << 16))

    def await_end(self):
        """Read until the server has closed."""
        with suppress(ConnectionError):
            while self.socket.recv(1 << 16):
                pass
        self.socket.close()


def broken_hello(rng, version):
    """Return a first flight that is cut, has bits turned, is sent twice, or has junk behind it."""
    data = bytearray(hello(version))
    match rng.randrange(4):
        case 0:
            return bytes(data[: rng.randrange(len(data))])
        case 1:
            for _ in range(rng.randint(1, 4)):
                data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        case 2:
            return bytes(data) * 2
        case _:
            data += rng.randbytes(200)
    return bytes(data)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["1.2", "1.3"])
@pytest.mark.parametrize("loop", LOOPS)
def test_broken_handshakes_end_by_the_deadline_and_nobody_hears_of_them(version, loop, files, caplog):
    rng = random.Random(13)
    options = TransportOptions(handshake_s_max=HANDSHAKE_S_MAX)
    with served(tls=server_context(files, "h2"), options=options, loop=loop) as server:
        begun = [Handshake(server.port, version) for _ in range(ROUNDS)]
        for one in begun:
            with suppress(OSError):  # too late already, on a busy machine
                one.socket.sendall(broken_hello(rng, version))
        for one in begun:
            one.await_end()
        assert server.connections == 0
    assert caplog.records == []


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["1.2", "1.3"])
@pytest.mark.parametrize("loop", LOOPS)
def test_a_wrong_record_ends_its_session_and_nobody_hears_of_it(version, loop, files, caplog):
    """Records of any type, alerts and new handshakes included, that are not encrypted by the session's keys."""
    rng = random.Random(13)
    with served(tls=server_context(files, "h2"), loop=loop) as server:
        for _ in range(ROUNDS):
            one = Handshake(server.port, version)
            one.finish()
            one.socket.sendall(bytes((rng.choice([20, 21, 22, 23, 24, 99]), 3, 3, 0, 64)) + rng.randbytes(64))
            one.await_end()
        with Secured(server) as client:
            client.send(PREFACE, frame(SETTINGS))
            client.await_frame(SETTINGS)
    assert caplog.records == []
