"""Facts about who may read a source in bulk."""

import apsw
import httpx
import pyarrow as pa
import pytest

from running import Running
from serving import wait_until
from tailrace.access.options import AuthConfig, PrincipalConfig
from tailrace.model.op import Op
from web import web

pytestmark = pytest.mark.usefixtures("one_process_and_workers")

AUTH = AuthConfig(
    enabled=True,
    tokens=("master",),
    principals={
        "ann": PrincipalConfig(tokens=("ann-key",), namespaces=("app",), role="viewer"),
        "mia": PrincipalConfig(tokens=("mia-key",), rows={"app.users": "name = 'mine'"}),
        "tim": PrincipalConfig(tokens=("tim-key",), tables=("app.users",)),
        "out": PrincipalConfig(tokens=("out-key",), tables=("other.users",)),
        "far": PrincipalConfig(tokens=("far-key",), namespaces=("acme",)),
        "nil": PrincipalConfig(tokens=("nil-key",), capabilities=("nothing",)),
    },
)
PATHS = ("", "/cuts?after=0", "/changes?after=0")


@pytest.fixture
async def world():
    async with web(auth=AUTH) as served:
        await served.append(Op.INSERT)
        yield served


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    ("token", "status"),
    [("master", 200), ("ann-key", 200), ("mia-key", 200), ("tim-key", 200), ("out-key", 403), ("far-key", 403)],
)
async def test_a_source_is_read_in_bulk_by_those_who_see_tables_of_it(world, path, token, status):
    answer = await world.client.get(f"/api/v1/bulk/app{path}", headers={"Authorization": f"Bearer {token}"})
    assert answer.status_code == status
    if status == 403:
        assert answer.json()["error"]["code"] == "forbidden"


@pytest.mark.parametrize("path", PATHS)
async def test_who_may_not_read_reads_nothing_in_bulk(world, path):
    answer = await world.client.get(f"/api/v1/bulk/app{path}", headers={"Authorization": "Bearer nil-key"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "forbidden")


@pytest.mark.parametrize("path", PATHS)
async def test_who_has_no_credentials_reads_nothing_in_bulk(world, path):
    assert (await world.client.get(f"/api/v1/bulk/app{path}")).status_code == 401


async def test_a_source_that_is_not_reached_is_refused_like_one_that_is_not_there(world):
    answers = [
        await world.client.get(f"/api/v1/bulk/{source}", headers={"Authorization": "Bearer far-key"})
        for source in ("app", "none")
    ]
    assert [answer.status_code for answer in answers] == [403, 403]
    app, none = (answer.json()["error"]["message"] for answer in answers)
    assert app.replace("app", "none") == none


# ---- a source with tables that some do not see

SHOP = AuthConfig(
    enabled=True,
    tokens=("master",),
    principals={
        "tim": PrincipalConfig(tokens=("tim-key",), tables=("shop.orders", "shop.later")),
        "mia": PrincipalConfig(tokens=("mia-key",), rows={"shop.orders": "qty > 1"}),
        "bob": PrincipalConfig(tokens=("bob-key",), tables=("shop.orders",), rows={"shop.orders": "qty > 1"}),
    },
)
HIDDEN = (b"secret", b"hush")
"""What only stands in the hidden table, its name included."""


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """Give a server whose source has a table for all and one for few, both changed in the same commits."""
    directory = tmp_path_factory.mktemp("shop")
    database = apsw.Connection(str(directory / "shop.db"))
    database.set_busy_timeout(20_000)
    database.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, qty INTEGER)")
    database.execute("CREATE TABLE secrets (id INTEGER PRIMARY KEY, hush TEXT)")
    database.execute("INSERT INTO secrets VALUES (1, 'secret of old')")
    server = Running(directory / "data", auth=SHOP, shop=f"sqlite:///{directory / 'shop.db'}")
    shop = Shop(server)
    wait_until(lambda: len(shop.get("master", "").json()["tables"]) == 2, "the tables known")
    for number in range(1, 6):
        database.execute("BEGIN")
        database.execute(f"INSERT INTO secrets VALUES ({number * 10}, 'secret of hush')")
        database.execute(f"INSERT INTO orders VALUES ({number}, {number})")
        database.execute(f"UPDATE secrets SET hush = 'secret more' WHERE id = {number * 10}")
        database.execute("COMMIT")
    database.execute("ALTER TABLE secrets ADD COLUMN hushed TEXT")
    database.execute("DELETE FROM secrets WHERE id = 20")
    shop.head = wait_until(lambda: shop.head_when(17), "the changes captured")
    yield shop
    server.stop()
    database.close()


class Shop:
    """A server, asked by those who see different things of it."""

    def __init__(self, server):
        self.server = server

    def get(self, token, path, **params):
        headers = {"Authorization": f"Bearer {token}"}
        return httpx.get(f"{self.server.url}/api/v1/bulk/shop{path}", params=params, headers=headers, timeout=20)

    def post(self, token, body):
        headers = {"Authorization": f"Bearer {token}"}
        url = f"{self.server.url}/api/v1/bulk/shop/subscriptions"
        return httpx.post(url, json=body, headers=headers, timeout=20)

    def head_when(self, least):
        head = self.get("master", "").json()["head"]
        return head if head >= least else 0


def forbidden(answer):
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "forbidden")
    return answer.json()["error"]["message"]


def test_only_tables_that_are_seen_are_described(shop):
    found = shop.get("tim-key", "")
    assert [table["table"] for table in found.json()["tables"]] == ["orders"]
    assert not [word for word in HIDDEN if word in found.content.lower()]
    assert found.json()["head"] == shop.head
    assert [table["table"] for table in shop.get("mia-key", "").json()["tables"]] == ["secrets"]
    assert shop.get("bob-key", "").json()["tables"] == []


@pytest.mark.parametrize("compression", ["none", "zstd"])
@pytest.mark.parametrize("named", [{}, {"tables": "orders"}])
def test_only_changes_of_tables_that_are_seen_are_sent(shop, compression, named):
    answer = shop.get("tim-key", "/changes", after=0, compression=compression, **named)
    reader = pa.ipc.open_stream(answer.content)
    rows = reader.read_all()
    assert [key for key in rows["key"].to_pylist() if key != b"[]"] == [b"[%d]" % number for number in range(1, 6)]
    held = b"".join(
        bytes(value) for column in ("key", "before", "after") for value in rows[column].to_pylist() if value
    )
    seen = answer.content + held + reader.schema.metadata[b"tailrace.schemas"]
    assert not [word for word in HIDDEN if word in seen.lower()]
    assert any(word in shop.get("master", "/changes", after=0).content.lower() for word in HIDDEN)


@pytest.mark.parametrize(
    ("path", "name"), [("", "tables"), ("/changes", "tables"), ("/ranges", "table"), ("/rows", "table")]
)
@pytest.mark.parametrize("token", ["tim-key", "bob-key"])
def test_a_hidden_table_is_refused_like_one_that_is_not_there(shop, path, name, token):
    hidden, none = (forbidden(shop.get(token, path, after=0, **{name: table})) for table in ("secrets", "nothing"))
    assert hidden.replace("secrets", "nothing") == none


@pytest.mark.parametrize(
    ("path", "name"), [("", "tables"), ("/changes", "tables"), ("/ranges", "table"), ("/rows", "table")]
)
def test_a_table_that_is_seen_may_be_missing(shop, path, name):
    answer = shop.get("tim-key", path, after=0, **{name: "later"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")


@pytest.mark.parametrize(
    ("path", "name"), [("", "tables"), ("/changes", "tables"), ("/ranges", "table"), ("/rows", "table")]
)
@pytest.mark.parametrize("token", ["mia-key", "bob-key"])
def test_a_table_of_which_only_some_rows_are_seen_is_refused_in_bulk(shop, path, name, token):
    told = forbidden(shop.get(token, path, after=0, **{name: "orders"}))
    assert told == "Access denied to table 'shop.orders' in bulk: only some of its rows are yours"


def test_rows_and_ranges_of_a_table_that_is_seen_can_be_had(shop):
    assert shop.get("tim-key", "/ranges", table="orders", parts=2).json() == {"cuts": ["[3]"], "rows": 5, "last": "[5]"}
    rows = pa.ipc.open_stream(shop.get("tim-key", "/rows", table="orders").content).read_all()
    assert rows["key"].to_pylist() == [b"[%d]" % number for number in range(1, 6)]


def test_a_subscription_is_made_to_tables_that_are_seen_whole(shop):
    assert shop.post("tim-key", {"tables": ["orders"]}).status_code == 201
    assert "secrets" in forbidden(shop.post("tim-key", {"tables": ["orders", "secrets"]}))
    assert "only some of its rows" in forbidden(shop.post("mia-key", {"tables": ["orders"]}))
