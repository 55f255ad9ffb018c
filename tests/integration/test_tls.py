"""Facts about both ports under TLS."""

import ssl
from pathlib import Path

import grpc
import httpx
import pytest
import websockets.asyncio.client

from certificates import Authority
from feeding import feeding
from tailrace.client import AsyncClient, ConnectionFailed
from tailrace.clock import SystemClock
from tailrace.delivery.grpc.proto import grpc_health_pb2 as health
from tailrace.delivery.grpc.server import GrpcServer
from tailrace.delivery.http import HttpOptions, serve
from tailrace.delivery.tls import TlsConfig, tls_context
from tailrace.interface.assemble import create_app
from tailrace.metrics import Metrics
from tailrace.subscription.access import Scopes
from web import DEADLINE_S


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def server_files(authority):
    return authority.sign("server")


@pytest.fixture(scope="module")
def client_files(authority):
    return authority.sign("client", client=True)


def trusting(authority, files=None):
    context = ssl.create_default_context(cafile=authority.file)
    if files is not None:
        context.load_cert_chain(*files)
    return context


async def http_over(config, run):
    async with feeding() as world:
        app = create_app(Scopes(world.service), list, Metrics(), SystemClock(), HttpOptions())
        tls = tls_context(config, ["http/1.1"])
        async with serve(app, "127.0.0.1", 0, on_stop=world.service.stop, stop_timeout_s=1, tls=tls) as address:
            await run(address)


async def test_http_and_websockets_are_served_over_tls(authority, server_files):
    async def run(address):
        assert address.url == f"https://127.0.0.1:{address.port}"
        async with httpx.AsyncClient(verify=trusting(authority), base_url=address.url, timeout=DEADLINE_S) as client:
            assert (await client.get("/health")).json()["status"] == "ok"
        url = f"wss://127.0.0.1:{address.port}/api/v1/cdc/ws"
        context = trusting(authority)
        async with websockets.asyncio.client.connect(url, ssl=context, proxy=None, open_timeout=DEADLINE_S) as socket:
            await socket.send("{}")
            assert "error" in await socket.recv()
        async with httpx.AsyncClient(timeout=DEADLINE_S) as client:
            with pytest.raises(httpx.RemoteProtocolError):
                await client.get(f"http://127.0.0.1:{address.port}/health")

    await http_over(TlsConfig(*server_files), run)


async def test_our_client_trusts_the_authorities_that_the_environment_names(authority, server_files, monkeypatch):
    async def run(address):
        async with AsyncClient(address.url) as client:
            with pytest.raises(ConnectionFailed, match="certificate"):
                await client.list()
        monkeypatch.setenv("SSL_CERT_FILE", authority.file)
        async with AsyncClient(address.url) as client:
            assert await client.list() == ()

    await http_over(TlsConfig(*server_files), run)


async def test_http_is_for_clients_with_a_certificate_where_that_is_asked_for(authority, server_files, client_files):
    async def run(address):
        async with httpx.AsyncClient(verify=trusting(authority, client_files), timeout=DEADLINE_S) as client:
            assert (await client.get(f"{address.url}/health")).status_code == 200
        async with httpx.AsyncClient(verify=trusting(authority), timeout=DEADLINE_S) as client:
            with pytest.raises(httpx.TransportError):
                await client.get(f"{address.url}/health")

    await http_over(TlsConfig(*server_files, authority.file), run)


def read(path):
    return Path(path).read_bytes()


async def check_health(address, credentials):
    async with grpc.aio.secure_channel(address, credentials) as channel:
        check = channel.unary_unary(
            "/grpc.health.v1.Health/Check",
            health.HealthCheckRequest.SerializeToString,
            health.HealthCheckResponse.FromString,
        )
        return (await check(health.HealthCheckRequest(), timeout=DEADLINE_S)).status


async def test_grpc_is_served_over_tls(authority, server_files):
    server = GrpcServer("127.0.0.1", 0, tls=tls_context(TlsConfig(*server_files), ["h2"]))
    address = await server.start()
    try:
        credentials = grpc.ssl_channel_credentials(read(authority.file))
        assert await check_health(address, credentials) == health.HealthCheckResponse.SERVING
    finally:
        await server.stop()


async def test_grpc_is_for_clients_with_a_certificate_where_that_is_asked_for(authority, server_files, client_files):
    config = TlsConfig(*server_files, authority.file)
    server = GrpcServer("127.0.0.1", 0, tls=tls_context(config, ["h2"]))
    address = await server.start()
    try:
        cert, key = map(read, client_files)
        credentials = grpc.ssl_channel_credentials(read(authority.file), key, cert)
        assert await check_health(address, credentials) == health.HealthCheckResponse.SERVING
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await check_health(address, grpc.ssl_channel_credentials(read(authority.file)))
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    finally:
        await server.stop()
