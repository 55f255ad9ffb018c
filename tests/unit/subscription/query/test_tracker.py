"""Facts about trackers."""

import apsw
import pytest

from feeding import chunk_of, draft_of, schema_of
from tailrace.metrics import Metrics
from tailrace.model.number import Offset
from tailrace.model.op import Op
from tailrace.model.subscription import PreparedQuery
from tailrace.source.sqlite.query_catalog import QueryCatalog
from tailrace.sql.dialect import dialect_of
from tailrace.sql.sqlite.query.statement import parse
from tailrace.subscription.query import tracker as module
from tailrace.subscription.query.tracker import Tracker, has_schema_change
from tailrace.testing.log import MemoryLog

USERS = "CREATE TABLE users(id INTEGER PRIMARY KEY, name TEXT)"


class Database:
    """The reading side of a database in memory."""

    dialect = dialect_of("sqlite")

    def __init__(self, *statements):
        self.connection = apsw.Connection(":memory:")
        self.consulted = 0
        for statement in statements:
            self.connection.execute(statement)

    async def consult(self, use):
        self.consulted += 1
        return use(QueryCatalog(self.connection)), str(self.connection.pragma("schema_version"))


class World:
    def __init__(self, sql="SELECT name FROM users", epoch="e"):
        self.log = MemoryLog()
        self.database = Database(USERS)
        prepared = PreparedQuery("q", "app", sql, sql, "", 0)
        self.metrics = Metrics()
        self.tracker = Tracker(prepared, parse(sql), (), self.database, self.log, epoch, self.metrics)

    async def open(self):
        self.users = await self.log.put_schema(schema_of("users"))
        self.others = await self.log.put_schema(schema_of("others"))
        return self

    async def append(self, op, schema):
        await self.log.append([draft_of([(op, schema)])])

    async def etag(self, catalog=None):
        return (await self.tracker.follow(self.log.head, catalog)).tag()


@pytest.fixture
async def world():
    return await World().open()


async def test_an_etag_changes_with_the_changes_that_matter_alone(world):
    first = await world.etag()
    await world.append(Op.INSERT, world.others)
    assert await world.etag() == first
    await world.append(Op.INSERT, world.users)
    second = await world.etag()
    assert second != first
    assert await world.etag() == second


async def test_changes_of_tables_that_are_read_are_counted_by_their_verdict():
    world = await World("SELECT name FROM users WHERE id = 0").open()
    await world.etag()
    await world.log.append([draft_of([(Op.INSERT, world.users)] * 3 + [(Op.INSERT, world.others)])])
    await world.etag()
    await world.etag()
    value = world.metrics.registry.get_sample_value
    counted = {v: value("tailrace_query_changes_total", {"verdict": v}) for v in ("relevant", "irrelevant")}
    assert counted == {"relevant": 1, "irrelevant": 2}


async def test_a_new_tracker_never_repeats_an_etag_after_a_change_that_mattered(world):
    first = await world.etag()
    await world.append(Op.INSERT, world.users)
    other = Tracker(world.tracker.prepared, world.tracker.statement, (), world.database, world.log, "e", Metrics())
    assert (await other.follow(world.log.head)).tag() != first


async def test_another_epoch_gives_other_etags(world):
    other = Tracker(world.tracker.prepared, world.tracker.statement, (), world.database, world.log, "f", Metrics())
    assert (await other.follow(world.log.head)).tag() != await world.etag()


async def test_a_schema_change_in_the_log_has_the_query_analysed_anew(world):
    first = await world.etag()
    world.database.connection.execute("CREATE INDEX i ON users(name)")
    await world.append(Op.SCHEMA, world.others)
    assert await world.etag() != first
    assert world.database.consulted == 2


async def test_another_catalog_has_the_query_analysed_anew(world):
    first = await world.etag()
    world.database.connection.execute("CREATE INDEX i ON users(name)")
    version = str(world.database.connection.pragma("schema_version"))
    second = await world.etag(version)
    assert second != first
    assert await world.etag(version) == second
    assert world.database.consulted == 2


async def test_a_query_that_no_longer_fits_has_a_problem_until_it_fits_again(world):
    await world.etag()
    world.database.connection.execute("DROP TABLE users")
    await world.append(Op.SCHEMA, world.users)
    standing = await world.tracker.follow(world.log.head)
    assert standing.problem is not None
    assert standing.tag() != standing.tag()
    world.database.connection.execute(USERS)
    await world.append(Op.SCHEMA, world.users)
    standing = await world.tracker.follow(world.log.head)
    assert standing.problem is None
    assert standing.tag() == standing.tag()


async def test_a_volatile_query_has_another_etag_each_time():
    world = await World("SELECT random() FROM users").open()
    assert await world.etag() != await world.etag()


async def test_changes_lost_to_retention_or_too_many_of_them_give_a_new_beginning(world, monkeypatch):
    first = await world.etag()
    for _ in range(4):
        await world.append(Op.INSERT, world.others)
    world.log.forget_before(Offset(3))
    second = await world.etag()
    assert second != first
    monkeypatch.setattr(module, "_BACKLOG_MAX", 2)
    for _ in range(4):
        await world.append(Op.INSERT, world.others)
    third = await world.etag()
    assert third not in (first, second)
    assert world.database.consulted == 1


def test_only_what_follows_is_searched_for_schema_changes():
    chunk = chunk_of([schema_of("users")], draft_of([(Op.SCHEMA, 1), (Op.INSERT, 1)]))
    assert has_schema_change(chunk, Offset(0))
    assert not has_schema_change(chunk, Offset(1))
