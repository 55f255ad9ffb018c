"""What the reading side of every source promises. A new source adds itself to `DATABASES` of `source_databases`.

Capture runs beside it, as in a server: what is read has to agree with the commits that come out of it.
"""

import asyncio
import contextlib
import json
import threading
from contextlib import aclosing
from itertools import pairwise

import pytest

from source_databases import (
    DATABASES,
    ELSEWHERE,
    ITEM,
    KEYLESS,
    AddColumn,
    Delete,
    Insert,
    Truncate,
    Update,
)
from tailrace.model.commit import CommitId, Progress
from tailrace.model.errors import (
    InvalidRequestError,
    InvalidValueError,
    QueryTimeoutError,
    ResultTooLargeError,
    SourceUnavailableError,
    UnknownTableError,
)
from tailrace.model.image import completed
from tailrace.model.key_interval import KeyInterval
from tailrace.model.op import Op
from tailrace.model.table import Identity, TableName
from tailrace.source.base import RunLimits
from tailrace.testing.registry import MemoryRegistry

DEADLINE_S = 20
LIMITS = RunLimits(rows_max=1000, bytes_max=1 << 20, timeout_s=DEADLINE_S)
EVERYTHING = KeyInterval()
TABLE = TableName("app", "item")


@pytest.fixture(params=DATABASES)
def database(request, tmp_path):
    require(DATABASES[request.param], "reads")
    made = DATABASES[request.param](tmp_path)
    made.create(ITEM)
    yield made
    made.close()


def require(database, ability):
    """Skip where a database does not promise something."""
    if not getattr(database.abilities, ability):
        pytest.skip(f"this kind of source has no {ability}")


class Captured:
    """What capture has given so far, as a log would have it."""

    def __init__(self, registry, reads):
        self.reads = reads
        self.schemas = registry.schemas
        self.drafts = []
        self.position = None
        self._moved = asyncio.Condition()

    async def follow(self, source):
        async with aclosing(source.commits(None)) as commits:
            async for group in commits:
                if isinstance(group, Progress):
                    self.position = group.position
                else:
                    self.drafts += group
                    if not group[-1].more:
                        self.position = group[-1].position
                async with self._moved:
                    self._moved.notify_all()

    async def reach(self, barrier):
        async with asyncio.timeout(DEADLINE_S), self._moved:
            await self._moved.wait_for(lambda: self.reads.reached(barrier, self.position))

    async def catch_up(self):
        await self.reach(await self.reads.newest(DEADLINE_S))

    def rows_after(self, read, rows, table=TABLE):
        """Return rows of a table, by key, after all commits that a page or a snapshot does not contain."""
        for draft in self.drafts:
            if read.contains(CommitId(draft.position, draft.txid)):
                continue
            for op, schema, key, after in zip(draft.ops, draft.schemas, draft.keys, draft.afters, strict=True):
                if self.schemas[schema].table != table:
                    continue
                match Op(op):
                    case Op.INSERT | Op.UPDATE:
                        rows[key] = completed(after, rows[key]) if key in rows else after
                    case Op.DELETE:
                        rows.pop(key, None)
                    case Op.TRUNCATE:
                        rows.clear()
        return rows


@contextlib.asynccontextmanager
async def reading(database):
    """Give the reading side, and what capture gives beside it."""
    opened = database.open()
    registry = MemoryRegistry()
    await opened.capture.open(registry)
    captured = Captured(registry, opened.reads)
    following = asyncio.create_task(captured.follow(opened.capture))
    try:
        yield opened.reads, captured
    finally:
        following.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await following
        await opened.reads.close()
        await opened.capture.close()


def insert(number, schema=""):
    return Insert("item", {"id": number, "name": f"item {number}"}, schema)


def image(number):
    return {"id": number, "name": f"item {number}"}


async def all_of(snapshot):
    """Return the rows of a snapshot by key."""
    rows = {}
    while (some := await snapshot.rows()) is not None:
        assert some.keys
        assert len(some.keys) == len(some.images)
        rows.update(zip(some.keys, some.images, strict=True))
    return rows


async def snapshot_of(reads, table=TABLE):
    taken = await reads.snapshot(table, DEADLINE_S)
    rows = await all_of(taken)
    taken.close()
    return rows


async def pages_of(reads, rows_max, within=EVERYTHING, table=TABLE):
    """Return the pages of an interval."""
    pages = []
    while True:
        page = await reads.page(table, within, rows_max=rows_max, timeout_s=DEADLINE_S)
        pages.append(page)
        if page.end:
            return pages
        within = KeyInterval(page.last, within.through)


def ids(rows):
    return [json.loads(key)[0] for key in rows.keys]


async def run(reads, sql, *arguments, limits=LIMITS):
    """Run a query as a server does: in the form that its dialect gives it."""
    statement = reads.dialect.parse_query(sql)
    return await reads.run(statement.text, reads.dialect.bind(arguments, statement.arguments), limits)


# Barriers


async def test_a_log_without_commits_has_what_was_committed_before_the_first_opening(database):
    database.write(insert(1))
    async with reading(database) as (reads, _):
        assert reads.reached(await reads.newest(DEADLINE_S), None)


async def test_a_barrier_is_reached_once_the_log_has_everything_that_was_committed(database):
    async with reading(database) as (reads, captured):
        await captured.catch_up()
        before = captured.position
        database.write(insert(1), insert(2))
        barrier = await reads.newest(DEADLINE_S)
        assert not reads.reached(barrier, before)
        await captured.reach(barrier)
        assert [key for draft in captured.drafts for key in draft.keys] == [b"[1]", b"[2]"]


async def test_each_barrier_on_the_way_is_reached_by_the_commit_that_it_stands_for(database):
    async with reading(database) as (reads, captured):
        barriers = []
        for number in range(1, 4):
            database.write(insert(number))
            barriers.append(await reads.newest(DEADLINE_S))
        await captured.reach(barriers[-1])
        positions = [draft.position for draft in captured.drafts]
        for number, barrier in enumerate(barriers):
            has = {key for draft in captured.drafts for key in draft.keys if reads.reached(barrier, draft.position)}
            assert f"[{number + 1}]".encode() in has
            assert reads.reached(barrier, positions[-1])


async def test_a_barrier_is_reached_where_the_database_moves_on_without_a_change(database):
    require(database, "progress")
    async with reading(database) as (reads, captured):
        database.write(insert(1))
        await captured.catch_up()
        database.move_on()
        barrier = await reads.newest(DEADLINE_S)
        await captured.reach(barrier)
        assert len(captured.drafts) == 1


# Catalogs and queries


async def test_the_catalog_is_used_in_a_thread_and_has_the_version_of_barriers(database):
    async with reading(database) as (reads, _):
        thread, version = await reads.consult(lambda _: threading.get_ident())
        assert thread != threading.get_ident()
        assert version == (await reads.newest(DEADLINE_S)).catalog


async def test_each_version_of_the_schema_has_a_catalog_of_its_own(database):
    async with reading(database) as (reads, captured):
        versions, names = [], []
        for column in ("", "price", "weight"):
            if column:
                database.write(AddColumn("item", column))
                await captured.catch_up()
            catalog, version = await reads.consult(lambda catalog: catalog.version)
            versions.append(catalog)
            names.append(version)
            assert version == (await reads.newest(DEADLINE_S)).catalog
        assert len(set(versions)) == len(set(names)) == 3


async def test_rows_do_not_change_the_catalog(database):
    async with reading(database) as (reads, captured):
        before = await reads.consult(lambda catalog: catalog.version)
        database.write(insert(1))
        await captured.catch_up()
        assert await reads.consult(lambda catalog: catalog.version) == before


async def test_what_the_use_of_a_catalog_raises_is_raised(database):
    async with reading(database) as (reads, _):
        with pytest.raises(ZeroDivisionError):
            await reads.consult(lambda _: 1 / 0)


async def test_a_query_is_prepared_with_the_tables_that_it_depends_on(database):
    require(database, "sql")
    async with reading(database) as (reads, _):
        dialect = reads.dialect
        statement = dialect.parse_query("SELECT name FROM item WHERE id = ?")
        dependencies, version = await reads.consult(lambda catalog: dialect.analyse(statement, catalog))
        assert dependencies.tables == ("item",)
        assert not dependencies.volatile
        assert version == (await reads.newest(DEADLINE_S)).catalog
        judge = dialect.judge(dependencies, dialect.bind([1], statement.arguments))
        assert judge.relevant("item", Op.INSERT, None, image(1))


async def test_a_query_of_what_is_not_there_is_not_prepared(database):
    require(database, "sql")
    async with reading(database) as (reads, _):
        statement = reads.dialect.parse_query("SELECT absent FROM item")
        with pytest.raises(InvalidRequestError):
            await reads.consult(lambda catalog: reads.dialect.analyse(statement, catalog))


async def test_a_query_runs_with_its_arguments_on_what_is_committed(database):
    require(database, "sql")
    async with reading(database) as (reads, _):
        database.write(*map(insert, range(1, 5)), Delete("item", {"id": 3}))
        found = await run(reads, "SELECT id, name FROM item WHERE id > ?1 AND name <> ?2 ORDER BY id", 1, "item 4")
        assert found.columns == ("id", "name")
        assert [tuple(row) for row in found.rows] == [(2, "item 2")]
        assert found.catalog == (await reads.newest(DEADLINE_S)).catalog
        nothing = await run(reads, "SELECT name FROM item WHERE id = ?", 99)
        assert (nothing.columns, nothing.rows) == (("name",), [])


async def test_what_a_transaction_has_not_committed_is_read_by_nobody(database):
    database.write(insert(1))
    async with reading(database) as (reads, _):
        with database.transaction():
            database.run(insert(2))
            assert await reads.count(TABLE) == 1
            assert list(await snapshot_of(reads)) == [b"[1]"]
            (page,) = await pages_of(reads, 10)
            assert ids(page.rows()) == [1]
            if database.abilities.sql:
                assert (await run(reads, "SELECT count(*) FROM item")).rows == [(1,)]
        assert await reads.count(TABLE) == 2


@pytest.mark.parametrize(
    "limits", [RunLimits(4, 1 << 20, DEADLINE_S), RunLimits(1000, 10, DEADLINE_S)], ids=["rows", "bytes"]
)
async def test_a_result_beyond_a_limit_is_refused(database, limits):
    require(database, "sql")
    async with reading(database) as (reads, _):
        database.write(*map(insert, range(5)))
        with pytest.raises(ResultTooLargeError):
            await run(reads, "SELECT * FROM item", limits=limits)
        assert len((await run(reads, "SELECT * FROM item")).rows) == 5


async def test_a_result_of_just_as_many_rows_as_allowed_is_given(database):
    require(database, "sql")
    async with reading(database) as (reads, _):
        database.write(*map(insert, range(5)))
        found = await run(reads, "SELECT * FROM item", limits=RunLimits(5, 1 << 20, DEADLINE_S))
        assert len(found.rows) == 5


async def test_a_query_that_takes_too_long_is_ended_and_holds_up_nobody(database):
    require(database, "sql")
    async with reading(database) as (reads, _):
        limits = RunLimits(10, 1 << 20, 0.3)
        async with asyncio.timeout(DEADLINE_S):
            slow = asyncio.create_task(run(reads, database.slow_query, limits=limits))
            await reads.newest(DEADLINE_S)
            with pytest.raises(QueryTimeoutError):
                await slow
            assert (await run(reads, "SELECT 1")).rows == [(1,)]


async def test_a_query_that_is_cancelled_holds_up_nobody(database):
    require(database, "sql")
    async with reading(database) as (reads, _):
        async with asyncio.timeout(DEADLINE_S):
            slow = [asyncio.create_task(run(reads, database.slow_query, limits=RunLimits(1, 1, 1))) for _ in range(8)]
            await reads.newest(DEADLINE_S)
            for task in slow:
                task.cancel()
            await asyncio.wait(slow)
            assert (await run(reads, "SELECT 1")).rows == [(1,)]


@pytest.mark.parametrize("sql", ["DELETE FROM item", "SELECT absent FROM item", "SELECT 1 FROM absent", "SELECT FROM"])
async def test_the_database_runs_nothing_but_queries_that_it_takes(database, sql):
    require(database, "sql")
    database.write(insert(1))
    async with reading(database) as (reads, _):
        with pytest.raises(InvalidRequestError):
            await reads.run(sql, (), LIMITS)
        assert await reads.count(TABLE) == 1


async def test_many_tasks_may_read_at_one_time(database):
    database.write(*map(insert, range(20)))
    async with reading(database) as (reads, _):
        asked = [reads.count(TABLE), reads.last_key(TABLE), reads.newest(DEADLINE_S), snapshot_of(reads)]
        if database.abilities.sql:
            asked += [run(reads, "SELECT count(*) FROM item") for _ in range(8)]
        found = await asyncio.gather(*asked)
        assert found[:2] == [20, "[19]"]
        assert len(found[3]) == 20
        assert all(result.rows == [(20,)] for result in found[4:])


async def test_without_sql_queries_are_refused(database):
    if database.abilities.sql:
        pytest.skip("this kind of source has SQL")
    async with reading(database) as (reads, _):
        with pytest.raises(InvalidRequestError):
            reads.dialect.parse_query("SELECT 1")
        with pytest.raises(InvalidRequestError):
            await reads.run("SELECT 1", (), LIMITS)


# Snapshots


async def test_a_snapshot_has_all_rows_in_the_form_of_the_log(database):
    database.write(*map(insert, range(1, 4)))
    async with reading(database) as (reads, captured):
        database.write(insert(4), Update("item", {"id": 2}, {"name": "new"}), Delete("item", {"id": 3}))
        taken = await reads.snapshot(TABLE, DEADLINE_S)
        assert (taken.schema.table, taken.schema.key) == (TABLE, ("id",))
        rows = await all_of(taken)
        assert {key: json.loads(row) for key, row in rows.items()} == {
            b"[1]": image(1),
            b"[2]": {"id": 2, "name": "new"},
            b"[4]": image(4),
        }
        await captured.reach(taken.barrier)
        assert all(taken.contains(CommitId(draft.position, draft.txid)) for draft in captured.drafts)
        last = captured.drafts[-1]
        assert taken.complete(CommitId(last.position, last.txid))
        assert rows[b"[4]"] == next(after for draft in captured.drafts for after in draft.afters)
        taken.close()
        taken.close()


async def test_an_empty_table_has_an_empty_snapshot(database):
    async with reading(database) as (reads, _):
        assert await snapshot_of(reads) == {}


async def test_a_snapshot_stays_as_it_was_when_it_was_taken(database):
    database.write(insert(1))
    async with reading(database) as (reads, captured):
        taken = await reads.snapshot(TABLE, DEADLINE_S)
        database.write(insert(2), Update("item", {"id": 1}, {"name": "later"}))
        assert list(await all_of(taken)) == [b"[1]"]
        await captured.catch_up()
        assert not any(taken.contains(CommitId(draft.position, draft.txid)) for draft in captured.drafts)
        assert captured.rows_after(taken, {}) != {}
        taken.close()


async def test_a_snapshot_before_any_commit_of_the_log_is_complete(database):
    database.write(insert(1))
    async with reading(database) as (reads, _):
        taken = await reads.snapshot(TABLE, DEADLINE_S)
        assert taken.complete(None)
        taken.close()


async def test_a_snapshot_has_the_version_of_the_schema_that_its_rows_have(database):
    database.write(insert(1))
    async with reading(database) as (reads, captured):
        database.write(AddColumn("item", "price"), Insert("item", {"id": 2, "name": "two", "price": 5}))
        await captured.catch_up()
        taken = await reads.snapshot(TABLE, DEADLINE_S)
        assert [column.name for column in taken.schema.columns] == ["id", "name", "price"]
        rows = await all_of(taken)
        assert json.loads(rows[b"[1]"]) == {**image(1), "price": None}
        assert json.loads(rows[b"[2]"]) == {"id": 2, "name": "two", "price": 5}
        assert taken.barrier.catalog == (await reads.newest(DEADLINE_S)).catalog
        taken.close()


def write_much(database, begin, count):
    """Write to the keys from `begin` on: several writes to each, some of them in one transaction."""
    for number in range(begin, begin + count):
        database.write(insert(number))
        with database.transaction():
            database.run(Update("item", {"id": number}, {"name": f"new {number}"}))
            database.run(insert(number + 10_000))
        if number % 3 == 0:
            database.write(Delete("item", {"id": number}))
    if database.abilities.truncate:
        database.write(Truncate("item"), insert(begin))


@pytest.mark.parametrize("way", ["snapshot", "pages"])
async def test_rows_and_the_commits_that_they_do_not_contain_make_the_table(database, way):
    """The writer goes on while rows are read, so commits lie on both sides of what each reader saw."""
    database.write(insert(0))
    async with reading(database) as (reads, captured):
        writing = asyncio.create_task(asyncio.to_thread(write_much, database, 1, 60))
        reads_made = []
        while not writing.done():
            if way == "snapshot":
                taken = await reads.snapshot(TABLE, DEADLINE_S)
                reads_made.append((taken, await all_of(taken)))
                taken.close()
            else:
                page = await reads.page(TABLE, EVERYTHING, rows_max=100_000, timeout_s=DEADLINE_S)
                assert page.end
                rows = page.rows()
                reads_made.append((page, dict(zip(rows.keys, rows.images, strict=True))))
        await writing
        await captured.catch_up()
        wanted = {key: json.loads(row) for key, row in (await snapshot_of(reads)).items()}
        # Others have part of a commit that the source joined of several transactions.
        whole = [(read, rows) for read, rows in reads_made if read.complete(last_contained(read, captured))]
        assert whole
        for read, rows in whole:
            made = captured.rows_after(read, rows)
            assert {key: json.loads(row) for key, row in made.items()} == wanted


def last_contained(read, captured):
    commits = [CommitId(draft.position, draft.txid) for draft in captured.drafts]
    seen = [commit for commit in commits if read.contains(commit)]
    assert seen == commits[: len(seen)]
    return seen[-1] if seen else None


# Counts, keys and pages


async def test_rows_are_counted_and_the_last_key_is_known(database):
    async with reading(database) as (reads, _):
        assert (await reads.count(TABLE), await reads.last_key(TABLE)) == (0, None)
        database.write(*map(insert, [7, -3, 40]))
        assert (await reads.count(TABLE), await reads.last_key(TABLE)) == (3, "[40]")
        database.write(Delete("item", {"id": 40}))
        assert (await reads.count(TABLE), await reads.last_key(TABLE)) == (2, "[7]")


@pytest.mark.parametrize("rows_max", [1, 2, 5, 20, 50])
async def test_pages_give_each_row_once_in_the_order_of_keys(database, rows_max):
    numbers = [3, -8, 100, 0, 20, *range(30, 45)]
    database.write(*map(insert, numbers))
    async with reading(database) as (reads, _):
        pages = await pages_of(reads, rows_max)
        assert [one for page in pages for one in ids(page.rows())] == sorted(numbers)
        for page in pages:
            rows = page.rows()
            assert len(rows.keys) <= rows_max
            assert [json.loads(row) for row in rows.images] == list(map(image, ids(rows)))
            assert page.last == (rows.keys[-1].decode() if rows.keys else None)
            assert (page.schema.table, page.schema.key) == (TABLE, ("id",))


@pytest.mark.parametrize(
    ("after", "through", "found"),
    [
        (None, "[4]", [2, 4]),
        ("[4]", None, [6, 8]),
        ("[2]", "[6]", [4, 6]),
        ("[3]", "[7]", [4, 6]),
        ("[4]", "[4]", []),
        ("[6]", "[2]", []),
        ("[-9]", "[99]", [2, 4, 6, 8]),
    ],
)
async def test_an_interval_begins_after_one_key_and_ends_with_the_other(database, after, through, found):
    database.write(*map(insert, [2, 4, 6, 8]))
    async with reading(database) as (reads, _):
        for rows_max in (1, 3, 10):
            pages = await pages_of(reads, rows_max, KeyInterval(after, through))
            assert [one for page in pages for one in ids(page.rows())] == found


@pytest.mark.parametrize(("count", "rows"), [(0, 3), (2, 3), (3, 3), (10, 3), (12, 4), (5, 1)])
async def test_keys_that_cut_an_interval_make_runs_of_this_many_rows(database, count, rows):
    database.write(*(insert(2 * number) for number in range(count)))
    async with reading(database) as (reads, _):
        cuts = await reads.cut(TABLE, EVERYTHING, rows=rows, count=100)
        assert len(cuts) == count // rows
        for after, through in pairwise([None, *cuts]):
            pages = await pages_of(reads, 100, KeyInterval(after, through))
            assert sum(len(page.rows().keys) for page in pages) == rows
        rest = await pages_of(reads, 100, KeyInterval(cuts[-1] if cuts else None))
        assert sum(len(page.rows().keys) for page in rest) == count % rows
        assert await reads.cut(TABLE, EVERYTHING, rows=rows, count=1) == cuts[:1]


async def test_cuts_stay_within_their_interval(database):
    database.write(*map(insert, range(10)))
    async with reading(database) as (reads, _):
        assert await reads.cut(TABLE, KeyInterval("[2]", "[7]"), rows=2, count=9) == ["[4]", "[6]"]


async def test_a_page_as_columns_has_the_same_rows(database):
    names = ["item"]
    database.write(*map(insert, range(3)), Insert("item", {"id": 9, "name": None}))
    if database.abilities.hidden_number:
        names.append("note")
        database.create(KEYLESS)
        database.write(*[Insert("note", {"text": "same"})] * 2)
    async with reading(database) as (reads, _):
        for name in names:
            (page,) = await pages_of(reads, 10, table=TableName("app", name))
            columns = page.columns()
            if columns is None:
                continue
            hidden = page.schema.identity is Identity.ROW_NUMBER
            rows = page.rows()
            assert columns.schema.names == [*(["rowid"] if hidden else []), *(one.name for one in page.schema.columns)]
            dicts = columns.to_pylist()
            keys = [[row.pop("rowid")] if hidden else [row["id"]] for row in dicts]
            assert keys == [json.loads(key) for key in rows.keys]
            assert dicts == [json.loads(row) for row in rows.images]


@pytest.mark.parametrize("bound", ["no JSON", "[]", "[1, 2]", "7", '["x", 1]'])
async def test_a_bound_that_is_no_key_is_refused(database, bound):
    async with reading(database) as (reads, _):
        for within in (KeyInterval(after=bound), KeyInterval(through=bound)):
            with pytest.raises(InvalidValueError):
                await reads.page(TABLE, within, rows_max=1, timeout_s=DEADLINE_S)
            with pytest.raises(InvalidValueError):
                await reads.cut(TABLE, within, rows=1, count=1)


@pytest.mark.parametrize("table", [TableName("app", "absent"), TableName("app", "item", "absent")])
async def test_a_table_that_is_not_there_is_unknown(database, table):
    async with reading(database) as (reads, _):
        for call in (
            lambda: reads.snapshot(table, DEADLINE_S),
            lambda: reads.count(table),
            lambda: reads.last_key(table),
            lambda: reads.cut(table, EVERYTHING, rows=1, count=1),
            lambda: reads.page(table, EVERYTHING, rows_max=1, timeout_s=DEADLINE_S),
        ):
            with pytest.raises(UnknownTableError):
                await call()


# Other tables


async def test_a_table_outside_the_default_schema_has_its_own_rows(database):
    require(database, "schemas")
    database.create(ELSEWHERE)
    elsewhere = TableName("app", "item", "other")
    database.write(insert(1), insert(2, "other"), insert(3, "other"))
    async with reading(database) as (reads, captured):
        assert [await reads.count(table) for table in (TABLE, elsewhere)] == [1, 2]
        assert await reads.last_key(elsewhere) == "[3]"
        assert await reads.cut(elsewhere, EVERYTHING, rows=1, count=9) == ["[2]", "[3]"]
        assert list(await snapshot_of(reads, elsewhere)) == [b"[2]", b"[3]"]
        (page,) = await pages_of(reads, 10, table=elsewhere)
        assert (ids(page.rows()), page.schema.table) == ([2, 3], elsewhere)
        database.write(insert(4), insert(5, "other"))
        await captured.catch_up()
        rows = page.rows()
        made = captured.rows_after(page, dict(zip(rows.keys, rows.images, strict=True)), elsewhere)
        assert list(made) == [b"[2]", b"[3]", b"[5]"]
        if database.abilities.sql:
            assert (await run(reads, "SELECT id FROM other.item ORDER BY id")).rows == [(2,), (3,), (5,)]


async def test_rows_without_a_key_are_known_by_the_number_that_the_log_has(database):
    require(database, "hidden_number")
    database.create(KEYLESS)
    table = TableName("app", "note")
    async with reading(database) as (reads, captured):
        same = Insert("note", {"text": "same"})
        database.write(same, same, Insert("note", {"text": "other"}))
        await captured.catch_up()
        keys = [key for draft in captured.drafts for key in draft.keys]
        rows = await snapshot_of(reads, table)
        assert sorted(rows) == sorted(keys)
        assert sorted(json.loads(row)["text"] for row in rows.values()) == ["other", "same", "same"]
        pages = await pages_of(reads, 1, table=table)
        found = [key for page in pages for key in page.rows().keys]
        assert found == sorted(keys, key=json.loads)
        assert await reads.cut(table, EVERYTHING, rows=2, count=9) == [found[1].decode()]
        assert await reads.last_key(table) == found[-1].decode()


# Closing


async def test_closing_ends_what_runs_and_refuses_what_comes(database):
    async with reading(database) as (reads, _):
        running = []
        if database.abilities.sql:
            limits = RunLimits(1, 1 << 20, 10 * DEADLINE_S)
            running = [asyncio.create_task(run(reads, database.slow_query, limits=limits)) for _ in range(2)]
            await run(reads, "SELECT 1")  # those have begun
        async with asyncio.timeout(DEADLINE_S):
            await reads.close()
            ended = await asyncio.gather(*running, return_exceptions=True)
        assert all(isinstance(error, SourceUnavailableError) for error in ended)
        for call in (
            lambda: reads.newest(DEADLINE_S),
            lambda: reads.consult(lambda catalog: catalog.version),
            lambda: reads.count(TABLE),
            lambda: reads.page(TABLE, EVERYTHING, rows_max=1, timeout_s=DEADLINE_S),
        ):
            with pytest.raises(SourceUnavailableError):
                await call()
