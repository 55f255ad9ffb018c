"""Which names and pages the HTTP and gRPC interfaces serve; `acceptance/test_foreign_page.py` asks a browser."""

import grpc
import pytest
import websockets

from grpc_serving import served
from tailrace.access.options import AuthConfig
from tailrace.delivery.site import Site
from web import Connection, web

SUB = "sub_0000000000000001"
FOREIGN = "https://foreign.example"
PING = '{"skeinql":"1.0","id":1,"method":"system.ping"}'
PREFLIGHT = {"access-control-request-method": "POST", "access-control-request-headers": "authorization,x-anything"}
PATHS = ["/api/v1/rpc", f"/api/v1/cdc/sse/{SUB}", "/api/v1/cdc/sse", "/health", "/ready", "/metrics", "/nowhere"]


def refusals(world, reason):
    return world.metrics.registry.get_sample_value("tailrace_site_refusals_total", {"reason": reason})


@pytest.mark.parametrize("path", PATHS)
async def test_a_foreign_page_is_refused_on_every_path(path):
    async with web() as world:
        for verb in ("GET", "POST", "HEAD", "OPTIONS"):
            answer = await world.client.request(verb, path, headers={"origin": FOREIGN, **PREFLIGHT})
            assert answer.status_code == 403
            assert not [name for name in answer.headers if name.startswith("access-control-")]
            if verb != "HEAD":
                error = answer.json()["error"]
                assert error["code"] == "forbidden"
                assert FOREIGN in error["message"]
                assert "allowed_origins" in error["message"]
        assert refusals(world, "origin") == 4


@pytest.mark.parametrize("path", PATHS)
async def test_a_foreign_name_is_refused_on_every_path(path):
    async with web() as world:
        answer = await world.client.get(path, headers={"host": "rebound.example:8080"})
        assert answer.status_code == 403
        assert answer.json()["error"]["code"] == "forbidden"
        assert "allowed_hosts" in answer.json()["error"]["message"]
        assert refusals(world, "host") == 1


@pytest.mark.parametrize(
    "headers",
    [{"origin": FOREIGN}, {"host": "rebound.example"}, {"origin": "null"}, {"sec-fetch-site": "cross-site"}],
    ids=lambda headers: next(iter(headers)),
)
async def test_so_is_a_websocket(headers):
    async with web() as world:
        await world.subscribe()
        for path in ("", f"/{SUB}"):
            asked = {name: value for name, value in headers.items() if name != "host"}
            url = f"ws://{headers.get('host', '127.0.0.1')}:{world.address.port}/api/v1/cdc/ws{path}"
            options = {"proxy": None, "host": "127.0.0.1", "port": world.address.port}
            with pytest.raises(websockets.exceptions.InvalidStatus) as caught:
                await websockets.connect(url, additional_headers=asked, **options)
            assert caught.value.response.status_code == 403


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"origin": "http://127.0.0.1:{port}"},
        {"origin": "http://localhost:{port}", "host": "localhost:{port}"},
        {"host": "localhost"},
        {"host": "[::1]:1"},
        {"sec-fetch-site": "same-origin"},
        {"sec-fetch-site": "none"},
    ],
    ids=str,
)
async def test_who_is_no_page_or_a_page_of_the_server_is_served(headers):
    async with web() as world:
        filled = {name: value.format(port=world.address.port) for name, value in headers.items()}
        answer = await world.post(PING, **filled)
        assert answer.json()["ok"] is True


async def test_configured_origins_may_call_from_their_pages():
    async with web(site=Site((), [FOREIGN])) as world:
        asked = {"origin": FOREIGN, **PREFLIGHT}
        preflight = await world.client.options("/api/v1/rpc", headers=asked)
        assert preflight.status_code == 200
        assert preflight.headers["access-control-allow-origin"] == FOREIGN
        assert "POST" in preflight.headers["access-control-allow-methods"]
        assert "x-anything" in preflight.headers["access-control-allow-headers"]
        answer = await world.post(PING, origin=FOREIGN)
        assert answer.headers["access-control-allow-origin"] == FOREIGN
        assert "origin" in answer.headers["vary"].lower()
        async with world.socket(origin=FOREIGN) as socket:
            assert socket.connection.response.status_code == 101
        assert (await world.post(PING, origin="https://other.example")).status_code == 403


async def test_with_credentials_any_name_and_page_is_served_but_no_answer_is_shown_to_a_page():
    async with web(auth=AuthConfig(enabled=True, tokens=("secret",))) as world:
        answer = await world.post(PING, origin=FOREIGN, host="cdc.example", authorization="Bearer secret")
        assert answer.json()["ok"] is True
        assert "access-control-allow-origin" not in answer.headers
        assert (await world.post(PING, origin=FOREIGN)).status_code == 401


async def test_with_credentials_what_is_configured_is_kept_to():
    site = Site(["cdc.example"], [FOREIGN], guarded=True)
    async with web(auth=AuthConfig(enabled=True, tokens=("secret",)), site=site) as world:
        for headers, status in (
            ({"host": "cdc.example", "origin": FOREIGN}, 200),
            ({"host": "other.example"}, 403),
            ({"origin": "https://other.example"}, 403),
        ):
            assert (await world.post(PING, authorization="Bearer secret", **headers)).status_code == status


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        (["Host: localhost", "Host: localhost"], 400),
        (["Host: localhost", "Origin: http://localhost", "Origin: http://localhost"], 400),
        ([], 400),
        (["Host:"], 403),
    ],
    ids=["two hosts", "two origins", "no host", "empty host"],
)
async def test_a_request_that_others_may_read_differently_is_refused(lines, status):
    async with web() as world:
        connection = await Connection.open(world.address)
        connection.writer.write("\r\n".join(["GET /health HTTP/1.1", *lines, "", ""]).encode())
        assert (await connection.head())[0] == status
        await connection.close()


@pytest.mark.parametrize(
    ("options", "metadata", "code"),
    [
        ((), (), None),
        ((("grpc.default_authority", "localhost:50051"),), (), None),
        ((("grpc.default_authority", "rebound.example"),), (), grpc.StatusCode.PERMISSION_DENIED),
        ((), (("origin", FOREIGN),), grpc.StatusCode.PERMISSION_DENIED),
    ],
    ids=["by address", "by a loopback name", "by a foreign name", "from a page"],
)
def test_grpc_keeps_to_the_same_names_and_pages(options, metadata, code):
    with served(site=Site()) as server, grpc.insecure_channel(server.address, options) as channel:
        check = channel.unary_unary("/grpc.health.v1.Health/Check")
        if code is None:
            assert check(b"", metadata=metadata, timeout=60)
            return
        with pytest.raises(grpc.RpcError) as caught:
            check(b"", metadata=metadata, timeout=60)
        assert caught.value.code() is code
        assert "allowed_" in caught.value.details()
