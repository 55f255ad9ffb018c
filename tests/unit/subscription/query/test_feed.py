"""Facts about feeds of queries."""

import apsw
import pytest

from feeding import draft_of, schema_of
from tailrace.clock import SystemClock
from tailrace.meta.store import MetaStore
from tailrace.model.errors import SourceUnavailableError
from tailrace.model.op import Op
from tailrace.model.start import Latest
from tailrace.model.subscription import FilterOptions, Format, Include, QueryTarget, SubscribeRequest
from tailrace.source.sqlite.query_catalog import QueryCatalog
from tailrace.sql.dialect import dialect_of
from tailrace.subscription.query.service import QueryService, QueryShard
from tailrace.subscription.service import ServiceOptions, SubscriptionService
from tailrace.testing.log import MemoryLog


class Database:
    """The reading side of a database in memory, which can be out of reach."""

    dialect = dialect_of("sqlite")

    def __init__(self):
        self.connection = apsw.Connection(":memory:")
        self.connection.execute("CREATE TABLE users(id INTEGER PRIMARY KEY, name TEXT)")
        self.consulted = 0
        self.refusals = 0

    async def consult(self, use):
        if self.refusals:
            self.refusals -= 1
            raise SourceUnavailableError("the database is locked")
        self.consulted += 1
        return use(QueryCatalog(self.connection)), str(self.connection.pragma("schema_version"))

    async def newest(self, timeout_s):
        raise SourceUnavailableError("nobody tells how far the database is")


class World:
    async def open(self):
        self.log, self.database = MemoryLog(), Database()
        self.users = await self.log.put_schema(schema_of("users"))
        self.store = await MetaStore.open("sqlite://", SystemClock())
        shards = {"app": QueryShard(self.database, self.log)}
        self.queries = await QueryService.open(shards, self.store, SystemClock())
        self.service = await SubscriptionService.open(
            {"app": self.log}, self.store, ServiceOptions(), queries=self.queries
        )
        prepared = await self.queries.prepare("SELECT name FROM users LIMIT 1")
        self.target = QueryTarget(prepared.query_id)
        return self

    async def append(self):
        await self.log.append([draft_of([(Op.INSERT, self.users)])])


@pytest.fixture
async def world():
    made = await World().open()
    yield made
    await made.store.close()


async def test_a_feed_waits_while_the_schema_cannot_be_looked_at_and_skips_nothing(world):
    with world.service.feed_of_query(world.target, Latest()) as feed:
        await world.append()
        world.database.refusals = 3
        assert await feed.next(0.0) is None
        assert feed.after == 0
        batch = await feed.next(30.0)
        assert world.database.refusals == 0
        assert [batch.chunk.first + row for row in batch.rows()] == [1]


async def test_the_schema_is_looked_at_once_for_all_that_the_log_has(world):
    with world.service.feed_of_query(world.target, Latest()) as feed:
        await world.append()
        await feed.next(30.0)
        consulted = world.database.consulted
        for _ in range(5):
            await feed.next(30.0)
        assert world.database.consulted == consulted
        feed.advance(1)
        await world.append()
        await feed.next(30.0)
        assert world.database.consulted == consulted + 1


async def test_another_schema_has_the_query_analysed_anew_before_changes_are_judged(world):
    with world.service.feed_of_query(world.target, Latest()) as feed:
        await world.append()
        before = (await feed.next(30.0)).filter.standing
        feed.advance(1)
        world.database.connection.execute("CREATE INDEX i ON users(name)")
        await world.append()
        after = (await feed.next(30.0)).filter.standing
        assert after.catalog == str(world.database.connection.pragma("schema_version")) != before.catalog


async def test_what_is_verified_is_left_to_the_next_feed_unless_two_were_open_at_one_time(world):
    target = QueryTarget(world.target.query_id, precise=True)
    made = await world.service.subscribe(
        SubscribeRequest(target, filter=FilterOptions((Op.INSERT,)), include=Include(), format=Format.PLAIN_JSON)
    )
    verified = world.queries.verified
    with world.service.feed(made.id, Latest()) as feed:
        await feed.next(0)
    assert made.id in verified
    with world.service.feed(made.id, Latest()) as first, world.service.feed(made.id, Latest()) as second:
        assert made.id not in verified
        for feed in (first, second):
            await feed.next(0)
    assert made.id not in verified
    with world.service.feed(made.id, Latest()) as feed:
        await feed.next(0)
    assert made.id in verified
