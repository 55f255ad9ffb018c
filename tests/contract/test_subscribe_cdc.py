"""What SubscribeCDC and UnsubscribeCDC write is what pipelines are: in SQLite beside the server, and in MariaDB."""

import json

import apsw
import grpc
import pytest
from sqlalchemy import select

from databases import MariaDb
from pulling import Client
from running import Running
from serving import run, wait_until
from tailrace.clock import SystemClock
from tailrace.interface.jimdb.options import JimdbConfig
from tailrace.meta.engine import open_engine
from tailrace.meta.table import subscribe
from tailrace.model.errors import UnknownPipelineError
from tailrace.pipeline.store import PipelineStore

SINK = {
    "mysql_host": "db.example:3307",
    "mysql_user": "writer",
    "mysql_password": "se/cr@t",
    "mysql_db": "copy",
    "mysql_table": "orders_copy",
}
URL = "mysql://writer:se%2Fcr%40t@db.example:3307/copy?table=orders_copy"


class World:
    """A server, a client of it, and the metadata database that it writes to."""

    def __init__(self, directory, metadata_url):
        self.directory = directory
        self.database = apsw.Connection(str(directory / "shop.db"))
        self.database.execute(
            "CREATE TABLE orders (id INTEGER PRIMARY KEY); CREATE TABLE items (id INTEGER PRIMARY KEY)"
        )
        jimdb = JimdbConfig(cluster_id=3, server_url="http://tailrace.example:8080")
        self.server = Running(
            directory / "data", jimdb=jimdb, metadata_url=metadata_url, shop=f"sqlite:///{directory}/shop.db"
        )
        wait_until(self.server.is_ready, "the server is ready")
        self.client = Client(self.server.grpc)
        self.url = metadata_url or f"sqlite:///{directory}/data/metadata.db"
        self.metadata_url = metadata_url

    def subscribe(self, table="orders", name="one", type_="mysql", config=SINK):
        return self.client.subscribe(table, name, type_, config, "shop", 3)

    def unsubscribe(self, table="orders", name="one"):
        return self.client.unsubscribe(table, name, "shop", 3)

    def store(self):
        return PipelineStore.open(self.url, SystemClock())

    def rows(self):
        engine = open_engine(self.url)
        with engine.begin() as connection:
            found = [dict(row) for row in connection.execute(select(subscribe)).mappings()]
        engine.dispose()
        return found

    def close(self):
        self.client.close()
        self.server.stop()
        self.database.close()


@pytest.fixture(params=["sqlite", "mariadb"])
def world(request, tmp_path, servers):
    url = ""
    if request.param == "mariadb":
        url = servers.get(MariaDb).metadata_url()
    made = World(tmp_path, url)
    yield made
    made.close()


def test_a_subscription_is_a_pipeline_until_it_is_ended(world):
    told = world.subscribe()
    assert (told.cluster_id, told.db_name, told.table_name, told.subscriber_name) == (3, "shop", "orders", "one")
    assert (told.sink.type, dict(told.sink.config)) == (
        "mysql",
        {name: value for name, value in SINK.items() if name != "mysql_password"},
    )
    assert not told.cancel
    (row,) = world.rows()
    assert row == {
        "cluster_id": 3,
        "db_name": "shop",
        "table_name": "orders",
        "subscribe_name": "one",
        "db_id": 0,
        "table_id": told.table_id,
        "master_addrs": "http://tailrace.example:8080",
        "sink": URL,
        "cancel": 0,
        "owner": "",
    }
    store = world.store()
    kept = store.get("one")
    definition = kept.definition
    assert (definition.source, definition.tables, definition.sink) == ("shop", ("orders",), URL)
    assert (definition.server, definition.mode, kept.cancelled) == ("http://tailrace.example:8080", None, False)
    lease = store.acquire("one", "worker", 60)
    assert world.unsubscribe().cancel
    assert store.renew(lease, 60).cancelled
    assert [row["cancel"] for row in world.rows()] == [1]
    store.remove(lease)
    with pytest.raises(UnknownPipelineError):
        store.get("one")
    store.close()
    assert world.subscribe().subscriber_name == "one"


def test_the_same_subscription_again_is_the_same_and_another_one_needs_another_name(world):
    world.subscribe()
    assert world.subscribe().subscriber_name == "one"
    for other in ({"table": "items"}, {"config": SINK | {"mysql_db": "other"}}, {"type_": "console"}):
        if "type_" in other:
            other["config"] = {"url": "console:"}
        with pytest.raises(grpc.RpcError) as refused:
            world.subscribe(**other)
        assert refused.value.code() is grpc.StatusCode.ALREADY_EXISTS
        assert "se/cr" not in refused.value.details()
    assert world.subscribe("items", "two").table_id != world.subscribe().table_id
    assert len(world.rows()) == 2
    world.unsubscribe()
    with pytest.raises(grpc.RpcError) as refused:
        world.subscribe()
    assert refused.value.code() is grpc.StatusCode.ALREADY_EXISTS


def test_what_was_never_subscribed_cannot_be_ended(world):
    world.subscribe()
    for table, name in (("orders", "none"), ("items", "one"), ("none", "one")):
        with pytest.raises(grpc.RpcError) as refused:
            world.unsubscribe(table, name)
        assert refused.value.code() is grpc.StatusCode.NOT_FOUND
    assert [row["cancel"] for row in world.rows()] == [0]


def test_a_name_that_no_pipeline_may_have_is_refused(world):
    for name in ("", "with blank", "x" * 65, "-x"):
        with pytest.raises(grpc.RpcError) as refused:
            world.subscribe(name=name)
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert not (world.directory / "data/pipeline").exists()


def test_the_commands_show_it_without_its_password(world):
    world.subscribe()
    place = ["--metadata-url", world.metadata_url] if world.metadata_url else ["--data-dir", world.directory / "data"]
    shown = run("pipeline", "ls", "--json", *place)
    assert shown.returncode == 0, shown.stderr
    (found,) = json.loads(shown.stdout)
    assert (found["name"], found["sink"]) == ("one", "mysql://writer:***@db.example:3307/copy")
    assert "se/cr" not in shown.stdout
    assert "se%2Fcr" not in shown.stdout + shown.stderr
