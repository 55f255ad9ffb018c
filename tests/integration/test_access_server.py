"""Facts about who may see what of a whole server: queries, gRPC, the gateway, and keys that come and go."""

import base64
import json
import time

import apsw
import grpc
import httpx
import pytest
import websockets.sync.client
from click.testing import CliRunner

from certificates import Authority
from running import Running
from serving import wait_until
from signing import SECRET, hs256
from tailrace.access.options import AuthConfig, PrincipalConfig
from tailrace.app import Application
from tailrace.cli.token import token
from tailrace.config import Config, TlsConfig
from tailrace.delivery.grpc.proto import coordinode_cdc_pb2 as change_stream
from tailrace.delivery.grpc.proto import sochdb_pb2 as sochdb
from tailrace.model.errors import ConfigError

ROWS = {"shop.orders": "customer = 7"}
AUTH = AuthConfig(
    enabled=True,
    tokens=("master",),
    principals={
        "seven": PrincipalConfig(tokens=("seven-key",), capabilities=("read", "write"), rows=ROWS),
        "items": PrincipalConfig(tokens=("items-key",), tables=("shop.items",)),
        "copy": PrincipalConfig(tokens=("copy-key",), capabilities=("read", "manage_backups"), tables=("shop.items",)),
        "acme": PrincipalConfig(tokens=("acme-key",), tenant="acme", namespaces=("acme",)),
    },
    jwt_secret=SECRET.decode(),
    jwt_leeway="none",
)
SUBSCRIBE = "/sochdb.v1.SubscriptionService/Subscribe"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    directory = tmp_path_factory.mktemp("guarded")
    database = apsw.Connection(str(directory / "shop.db"))  # the same library as the server: it is one process
    database.execute("PRAGMA journal_mode = wal")
    database.set_busy_timeout(60_000)
    database.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, customer INTEGER, note TEXT)")
    database.execute("CREATE TABLE items (id INTEGER PRIMARY KEY, name TEXT)")
    running = Running(directory / "data", auth=AUTH, shop=f"sqlite:///{directory}/shop.db")
    running.database = database
    running.data_dir = directory / "data"
    try:
        wait_until(running.is_ready, "the server is ready")
        wait_until(lambda: subscribes(running, "orders") and subscribes(running, "items"), "the tables are known")
        yield running
    finally:
        running.stop()
        database.close()


def subscribes(server, table):
    return rpc(server, "master", "cdc.subscribe_table", db="shop", table=table)["ok"]


def rpc(server, key, method, **params):
    body = {"skeinql": "1.0", "id": 1, "method": method, "params": params}
    return httpx.post(f"{server.url}/api/v1/rpc", json=body, headers={"x-api-key": key}, timeout=20).json()


def refusal(server, key, method, **params):
    return rpc(server, key, method, **params)["error"]["code"]


# ---- queries

WHOLE = "SELECT note FROM orders WHERE id = 1"


def test_a_query_is_for_those_who_see_its_tables_whole(server):
    query_id = rpc(server, "master", "query.prepare", query=WHOLE)["result"]["query_id"]
    join = "SELECT name FROM items JOIN orders ON orders.id = items.id"
    items = rpc(server, "items-key", "query.prepare", query="SELECT name FROM items")["result"]["query_id"]
    for key in ("seven-key", "items-key"):
        for query in (WHOLE, join, "SELECT count(*) FROM orders"):
            assert refusal(server, key, "query.prepare", query=query) == "forbidden"
        for method in ("query.execute_prepared", "query.subscribe", "cdc.subscribe_query"):
            assert refusal(server, key, method, query_id=query_id) == "forbidden"
        assert rpc(server, key, "query.execute_prepared", query_id=items)["ok"]
        assert [entry["query_id"] for entry in rpc(server, key, "query.list")["result"]["queries"]] == [items]
        for path in (query_id, f"{query_id}/events"):
            answer = httpx.get(f"{server.url}/api/v1/q/{path}", headers={"x-api-key": key}, timeout=20)
            assert (answer.status_code, answer.json()["error"]["code"]) == (403, "forbidden")
        assert httpx.get(f"{server.url}/api/v1/q/{items}", headers={"x-api-key": key}, timeout=20).status_code == 200


def test_a_hidden_table_and_one_that_is_not_there_are_refused_alike(server):
    answers = [
        rpc(server, "items-key", "query.prepare", query=query)["error"]
        for query in ("SELECT 1 FROM orders", "SELECT 1 FROM absent", "SELECT absent FROM items")
    ]
    assert {answer["code"] for answer in answers} == {"forbidden"}
    assert refusal(server, "items-key", "query.prepare", query="SELECT 1; SELECT 2") == "invalid_request"


def test_a_copy_takes_up_no_query_that_may_not_be_run(server):
    query_id = rpc(server, "master", "query.prepare", query=WHOLE)["result"]["query_id"]
    for target in (
        {"query_id": query_id, "args": []},
        {"query_id": query_id, "query": WHOLE, "db": "shop", "args": []},
    ):
        sub = {"id": "sub_00000000000000aa", "acked_offset": 0, "target": {"Query": target}}
        assert refusal(server, "copy-key", "cdc.import", subs=[sub]) == "forbidden"
    items = rpc(server, "copy-key", "query.prepare", query="SELECT name FROM items")["result"]["query_id"]
    own = rpc(server, "copy-key", "cdc.subscribe_table", db="shop", table="items")["result"]["sub_id"]
    sub |= {"id": own, "target": {"Query": {"query_id": items, "args": []}}}
    assert rpc(server, "copy-key", "cdc.import", subs=[sub])["result"] == {"imported": 1}


def test_a_query_of_another_source_is_not_there(server):
    query_id = rpc(server, "master", "query.prepare", query=WHOLE)["result"]["query_id"]
    assert refusal(server, "acme-key", "query.execute_prepared", query_id=query_id) == "not_found"
    assert refusal(server, "acme-key", "query.prepare", query=WHOLE, db="shop") == "forbidden"
    assert refusal(server, "acme-key", "query.prepare", query=WHOLE, db="absent") == "forbidden"
    assert rpc(server, "acme-key", "query.list")["result"]["queries"] == []
    answer = httpx.get(f"{server.url}/api/v1/q/{query_id}", headers={"x-api-key": "acme-key"}, timeout=20)
    assert answer.status_code == 404


def test_a_view_that_becomes_another_is_not_shown_to_who_may_not_see_its_tables(server):
    server.database.execute("CREATE VIEW shown AS SELECT name FROM items")
    query_id = rpc(server, "items-key", "query.prepare", query="SELECT name FROM shown")["result"]["query_id"]
    assert rpc(server, "items-key", "query.execute_prepared", query_id=query_id)["ok"]
    server.database.execute("DROP VIEW shown")
    server.database.execute("CREATE VIEW shown AS SELECT note AS name FROM orders")
    assert refusal(server, "items-key", "query.execute_prepared", query_id=query_id) == "forbidden"


# ---- snapshots


def test_the_rows_of_a_snapshot_are_those_that_may_be_seen(server):
    server.database.execute("DELETE FROM orders")
    server.database.execute("INSERT INTO orders VALUES (1, 7, 'a'), (2, 8, 'b'), (3, 7, 'c'), (4, NULL, 'd')")
    options = {"snapshot": True, "include": {"after": True}, "format": "plain_json"}
    made = rpc(server, "seven-key", "cdc.subscribe_table", db="shop", table="orders", **options)["result"]
    keys = []
    with httpx.stream(
        "GET", f"{server.url}{made['sse_url']}", headers={"x-api-key": "seven-key"}, timeout=20
    ) as answer:
        for line in answer.iter_lines():
            if line.startswith("data: "):
                record = json.loads(line.removeprefix("data: "))
                if "rows" in record:
                    break
                keys.append(record["pk"])
    assert (keys, record["rows"]) == ([[1], [3]], 2)


# ---- gRPC


def subscribe(channel, key, namespace="shop", **options):
    call = channel.unary_stream(SUBSCRIBE, sochdb.SubscribeRequest.SerializeToString, sochdb.SubscribeEvent.FromString)
    request = sochdb.SubscribeRequest(namespace=namespace, **options)
    return call(request, metadata=key and [key], timeout=20)


def status(stream):
    with pytest.raises(grpc.RpcError) as caught:
        next(iter(stream))
    return caught.value.code(), caught.value.details()


REQUIRED = "Authentication required. Provide a Bearer token or API key."


@pytest.mark.parametrize(
    ("metadata", "text"),
    [
        (None, REQUIRED),
        (("authorization", "Bearer wrong"), REQUIRED),
        (("authorization", "bearer master"), REQUIRED),
        (("authorization", "master"), REQUIRED),
        (("x-api-key", "wrong"), REQUIRED),
        (("authorization", f"Bearer {hs256(exp=1)}"), "Authentication token has expired."),
        (("authorization", f"Bearer {hs256(secret=b'x' * 32)}"), REQUIRED),
        (("authorization", f"Bearer {hs256(exp=...)}"), REQUIRED),
        (("authorization", "Bearer a.b.c"), REQUIRED),
    ],
    ids=lambda value: str(value)[:40],
)
def test_grpc_wants_credentials_and_says_so_in_the_words_of_the_contract(server, metadata, text):
    with grpc.insecure_channel(server.grpc) as channel:
        assert status(subscribe(channel, metadata)) == (grpc.StatusCode.UNAUTHENTICATED, text)


def test_grpc_is_for_those_who_may(server):
    denied = grpc.StatusCode.PERMISSION_DENIED
    far = hs256(exp=time.time() + 100, tenant_id="acme")
    writer = hs256(exp=time.time() + 100, capabilities=["write"], sub="will", namespaces=["shop"])
    with grpc.insecure_channel(server.grpc) as channel:
        for metadata, options, text in [
            (("x-api-key", "acme-key"), {}, "Access denied to namespace 'shop' for tenant 'acme'"),
            (
                ("x-api-key", "acme-key"),
                {"namespace": "absent"},
                "Access denied to namespace 'absent' for tenant 'acme'",
            ),
            (("authorization", f"Bearer {far}"), {}, "Access denied to namespace 'shop' for tenant 'acme'"),
            (("authorization", f"Bearer {writer}"), {}, "Insufficient permissions. Required: Read, principal: will"),
            (
                ("x-api-key", "items-key"),
                {"tables": ["orders"]},
                "Access denied to table 'shop.orders' for tenant 'default'",
            ),
        ]:
            assert status(subscribe(channel, metadata, **options)) == (denied, text)


def test_seed_a_streams_the_rows_that_may_be_seen(server):
    with grpc.insecure_channel(server.grpc) as channel:
        stream = subscribe(channel, ("x-api-key", "seven-key"), tables=["orders"])
        stream.initial_metadata()
        server.database.execute("DELETE FROM orders")
        server.database.execute("INSERT INTO orders VALUES (20, 7, 'mine'), (21, 8, 'other')")
        server.database.execute("UPDATE orders SET customer = 15 - customer")
        events = (event for event in stream if json.loads(event.after_value or event.before_value)["id"] in (20, 21))
        shown = [next(events) for _ in range(3)]
        stream.cancel()
    assert [event.operation for event in shown] == [1, 3, 1]
    images = [[value and json.loads(value)["note"] for value in (e.before_value, e.after_value)] for e in shown]
    assert images == [[b"", "mine"], ["mine", b""], [b"", "other"]]


def test_change_streams_show_the_rows_that_may_be_seen(server):
    path = "/coordinode.v1.replication.ChangeStreamService/Subscribe"
    with grpc.insecure_channel(server.grpc) as channel:
        call = channel.unary_stream(
            path, change_stream.SubscribeRequest.SerializeToString, change_stream.ChangeEvent.FromString
        )
        server.database.execute("DELETE FROM orders")
        server.database.execute("INSERT INTO orders VALUES (30, 7, 'shown text'), (31, 8, 'hidden text')")
        stream = call(change_stream.SubscribeRequest(), metadata=[("x-api-key", "seven-key")], timeout=20)
        found = b""
        for event in stream:
            found += event.SerializeToString()
            if b"shown text" in found:
                break
        stream.cancel()
        assert b"hidden text" not in found
        refused = call(change_stream.SubscribeRequest(), timeout=20)
        assert status(refused) == (grpc.StatusCode.UNAUTHENTICATED, REQUIRED)


def test_health_is_for_everybody(server):
    with grpc.insecure_channel(server.grpc) as channel:
        check = channel.unary_unary("/grpc.health.v1.Health/Check", bytes, bytes)
        assert check(b"", timeout=20) == b"\x08\x01"
    assert server.get("/health").status_code == 200


# ---- keys that come and go


def made(server, *options):
    done = CliRunner().invoke(token, ["create", "temp", "--json", "--data-dir", str(server.data_dir), *options])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def revoke(server, key):
    done = CliRunner().invoke(token, ["revoke", key["id"], "--data-dir", str(server.data_dir)])
    assert done.exit_code == 0, done.output


def test_a_key_is_good_as_soon_as_it_is_made_and_ends_all_streams_when_it_is_revoked(server):
    key = made(server, "--table", "shop.orders", "--rows", "shop.orders=customer = 7")
    assert refusal(server, key["token"], "stats.snapshot") == "forbidden"
    sub = rpc(server, key["token"], "cdc.subscribe_table", db="shop", table="orders")["result"]
    headers = {"authorization": f"Bearer {key['token']}"}
    url = f"{server.url.replace('http', 'ws')}/"
    with (
        httpx.stream("GET", f"{server.url}{sub['sse_url']}", headers=headers, timeout=20) as sse,
        grpc.insecure_channel(server.grpc) as channel,
        websockets.sync.client.connect(url, additional_headers=headers, proxy=None, open_timeout=20) as socket,
    ):
        stream = subscribe(channel, ("x-api-key", key["token"]))
        stream.initial_metadata()
        changes = channel.unary_stream("/coordinode.v1.replication.ChangeStreamService/Subscribe", bytes, bytes)
        commits = changes(b"", metadata=[("x-api-key", key["token"])], timeout=20)
        commits.initial_metadata()
        revoke(server, key)
        lines = [line for line in sse.iter_lines() if line.startswith("data: ")]
        assert json.loads(lines[-1].removeprefix("data: "))["code"] == "unauthorized"
        assert status(stream) == (grpc.StatusCode.UNAUTHENTICATED, REQUIRED)
        with pytest.raises(grpc.RpcError) as caught:
            list(commits)
        assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
        with pytest.raises(websockets.exceptions.ConnectionClosed) as closed:
            socket.recv(timeout=20)
        assert closed.value.rcvd.code == 3000
    answer = httpx.get(f"{server.url}/metrics", headers=headers, timeout=20)
    assert answer.status_code == 401


def test_a_web_token_that_expires_ends_its_stream(server):
    short = hs256(exp=time.time() + 2, namespaces=["shop"])
    with grpc.insecure_channel(server.grpc) as channel:
        stream = subscribe(channel, ("authorization", f"Bearer {short}"), tables=["items"])
        assert status(stream) == (grpc.StatusCode.UNAUTHENTICATED, "Authentication token has expired.")


# ---- the gateway


def test_the_gateway_wants_credentials_and_heeds_them(server):
    url = server.url.replace("http", "ws")
    with (
        pytest.raises(websockets.exceptions.InvalidStatus) as refused,
        websockets.sync.client.connect(url, proxy=None, open_timeout=20),
    ):
        pass
    assert refused.value.response.status_code == 401
    with websockets.sync.client.connect(f"{url}/?access_token=seven-key", proxy=None, open_timeout=20) as socket:
        for type_, payload, text in [
            ("sql", {"query": "SELECT * FROM orders"}, "Access denied"),
            ("subscribe", {"namespace": "absent"}, "absent"),
        ]:
            socket.send(json.dumps({"id": "1", "type": type_, "payload": payload}))
            answer = json.loads(socket.recv(timeout=20))
            assert answer["type"] == "error"
            assert text in answer["payload"]["message"]
        socket.send(json.dumps({"id": "2", "type": "subscribe", "payload": {"tables": ["orders"]}}))
        assert json.loads(socket.recv(timeout=20))["payload"] == {"subscribed": True}
        server.database.execute("DELETE FROM orders")
        server.database.execute("INSERT INTO orders VALUES (41, 8, 'hidden'), (42, 7, 'shown')")
        images = []
        while not images or b"shown" not in images[-1]:
            event = json.loads(socket.recv(timeout=20))["payload"]
            images.append(base64.b64decode(event["after_value"] or event["before_value"]))
        assert not any(b"hidden" in image for image in images)


# ---- TLS and the configuration


def test_both_ports_of_a_server_speak_tls(tmp_path):
    authority = Authority(tmp_path)
    tls = TlsConfig(*authority.sign("server"))
    running = Running(tmp_path / "data", tls=tls)
    try:
        assert running.url.startswith("https://")
        assert httpx.get(f"{running.url}/health", verify=authority.context(), timeout=20).status_code == 200
        credentials = grpc.ssl_channel_credentials((tmp_path / "authority.pem").read_bytes())
        with grpc.secure_channel(running.grpc, credentials) as channel:
            check = channel.unary_unary("/grpc.health.v1.Health/Check", bytes, bytes)
            assert check(b"", timeout=20) == b"\x08\x01"
    finally:
        running.stop()


async def test_a_principal_with_a_predicate_that_cannot_be_read_is_a_mistake(tmp_path):
    auth = AuthConfig(enabled=True, principals={"x": PrincipalConfig(tokens=("a",), rows={"shop.orders": "id ="})})
    with pytest.raises(ConfigError, match=r"auth\.principals\.x"):
        async with Application(Config(data_dir=str(tmp_path / "data"), http_port=0, grpc_port=0, auth=auth)):
            pass
