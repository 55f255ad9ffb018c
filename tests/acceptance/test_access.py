"""The published client of SochDB and the commands against `tailrace serve --auth`: whom it lets in, and to what."""

import json
import sqlite3
import time
from pathlib import Path

import httpx
import pytest

from clients import published
from serving import DEADLINE_S, Server, run, wait_until
from signing import SECRET, hs256

pytestmark = pytest.mark.timeout(400)
"""The published client is installed within the first test that uses it; its processes take long to start."""

REQUIRED = "Authentication required. Provide a Bearer token or API key."


@pytest.fixture(scope="session")
def sochdb(pytestconfig):
    return published(pytestconfig, "sochdb==0.8.3", "sochdb_client.py")


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """A server that asks who calls, and the database that it captures."""
    directory = tmp_path_factory.mktemp("shop")
    database = sqlite3.connect(directory / "shop.db", isolation_level=None, timeout=30)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, customer INTEGER)")
    sqlite3.connect(directory / "acme.db").close()
    server = Server(
        directory / "data",
        *("--source", f"shop=sqlite:///{directory / 'shop.db'}"),
        *("--source", f"acme=sqlite:///{directory / 'acme.db'}", "--auth", "--auth-jwt-leeway", "none"),
        env={"TAILRACE_AUTH_JWT_SECRET": SECRET.decode(), "TAILRACE_AUTH_TOKENS": "master"},
    )
    server.database = database
    try:
        server.wait_ready()
        wait_until(lambda: known(server), "the table is captured")
        yield server
    finally:
        server.kill()
        database.close()


def known(server):
    body = {"skeinql": "1.0", "id": 1, "method": "cdc.subscribe_table", "params": {"db": "shop", "table": "orders"}}
    return httpx.post(
        f"{server.url}/api/v1/rpc", json=body, headers={"x-api-key": "master"}, timeout=DEADLINE_S
    ).json()["ok"]


def refused(sochdb, server, request, metadata):
    (line,) = sochdb.run("subscribe", server.addresses["grpc"], request, metadata)[-1:]
    return line["ended"], line["details"]


def bearer(**claims):
    return {"authorization": f"Bearer {hs256(**{'exp': time.time() + 60, **claims})}"}


def token(server, *arguments):
    done = run("token", *arguments, "--json", "--data-dir", server.data_dir)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_client_is_refused_in_the_words_of_the_contract(sochdb, shop):
    for metadata, namespace, answer in [
        ({}, "shop", ("UNAUTHENTICATED", REQUIRED)),
        (bearer(secret=b"another secret of thirty-two bytes!!"), "shop", ("UNAUTHENTICATED", REQUIRED)),
        (bearer(exp=time.time() - 1), "shop", ("UNAUTHENTICATED", "Authentication token has expired.")),
        (
            bearer(tenant_id="acme"),
            "shop",
            ("PERMISSION_DENIED", "Access denied to namespace 'shop' for tenant 'acme'"),
        ),
    ]:
        assert refused(sochdb, shop, {"namespace": namespace}, metadata) == answer


def test_a_key_of_the_command_shows_its_rows_until_it_is_revoked(sochdb, shop):
    key = token(shop, "create", "seven", "--namespace", "shop", "--rows", "shop.orders=customer = 7")
    assert [entry["name"] for entry in token(shop, "ls")] == ["seven"]
    script = sochdb.start(
        "subscribe", shop.addresses["grpc"], {"namespace": "shop"}, {"authorization": f"Bearer {key['token']}"}
    )
    try:
        assert "begun" in script.line()
        shop.database.execute("INSERT INTO orders VALUES (1, 8), (2, 7)")
        shop.database.execute("UPDATE orders SET customer = 15 - customer")
        shop.database.execute("DELETE FROM orders")
        shown = [(line["operation"], line["key"]) for line in script.lines(4)]
        assert shown == [("INSERT", "[2]"), ("INSERT", "[1]"), ("DELETE", "[2]"), ("DELETE", "[1]")]
        token(shop, "revoke", key["id"])
        assert script.line()["ended"] == "UNAUTHENTICATED"
    finally:
        script.kill()
    again = refused(sochdb, shop, {"namespace": "shop"}, {"x-api-key": key["token"]})
    assert again == ("UNAUTHENTICATED", REQUIRED)


def test_commands_need_a_token_too(shop):
    assert run("subs", "ls", "--server", shop.url).returncode == 1
    assert run("subs", "ls", "--server", shop.url, env={"TAILRACE_TOKEN": "master"}).returncode == 0


def test_no_secret_reaches_the_diagnostics(shop):
    written = Path(shop.errors.name).read_text()
    assert "master" not in written
    assert "tr_" not in written
    assert SECRET.decode() not in written
