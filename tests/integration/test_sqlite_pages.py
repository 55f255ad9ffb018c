"""Facts about the rows of an SQLite table by intervals of keys; a key may be null in part, and then not be unique."""

import asyncio
from contextlib import asynccontextmanager
from itertools import chain, pairwise, product

import apsw
import msgspec
import pytest

from tailrace.clock import SystemClock
from tailrace.model.errors import InvalidValueError, ResultTooLargeError
from tailrace.model.key_interval import KeyInterval
from tailrace.model.table import TableName
from tailrace.source.base import Reader
from tailrace.source.sqlite.options import SqliteOptions
from tailrace.source.sqlite.query import SqliteQuerySource
from tailrace.source.sqlite.source import SqliteSource
from tailrace.testing.registry import MemoryRegistry

TEXTS = [None, None, None, "a", "B", "c"]
NUMBERS = [None, 1, 2, None, 3]
TABLES = {
    "single": ("a TEXT PRIMARY KEY)", [(text,) for text in TEXTS]),
    "number": ("a INT PRIMARY KEY)", [(number,) for number in NUMBERS]),
    "untyped": ("a PRIMARY KEY)", [(value,) for value in [None, 1, "1", b"1", 2.5, None, float("inf")]]),
    "pair": ("a TEXT, b INT, PRIMARY KEY (a, b))", list(product(TEXTS, [*NUMBERS, *range(4, 9)]))),
    "turned": ("a TEXT, b INT, PRIMARY KEY (b DESC, a))", list(product(TEXTS, NUMBERS))),
    "folded": ("a TEXT COLLATE NOCASE, b INT, PRIMARY KEY (a, b))", list(product([*TEXTS, "b", "A"], [None, None]))),
    "partly": ("a TEXT NOT NULL, b INT, PRIMARY KEY (a, b))", list(product(TEXTS[3:], NUMBERS))),
    "triple": (
        "a TEXT, b INT, c BLOB, PRIMARY KEY (a, b, c))",
        list(product(["x", None, None], NUMBERS, [None, b"", None])),
    ),
    "nulls": ("a TEXT, b INT, PRIMARY KEY (a, b))", [(None, None)] * 9),
    "whole": ("a TEXT, b INT, PRIMARY KEY (a, b))", list(product(TEXTS[3:], [1, 2, 3]))),
    "strict": ("a TEXT, b INT, PRIMARY KEY (a, b)) WITHOUT ROWID", list(product(TEXTS[3:], [1, 2, 3]))),
}


@asynccontextmanager
async def capturing(path):
    """Give the reading side of a captured database with all tables; `mark` numbers the rows of a table."""
    database = apsw.Connection(str(path))
    for name, (columns, rows) in TABLES.items():
        database.execute(f"CREATE TABLE {name}(mark INTEGER, {columns}")
        places = ", ".join("?" * (len(rows[0]) + 1))
        with database:
            database.executemany(f"INSERT INTO {name} VALUES ({places})", [(n, *row) for n, row in enumerate(rows)])
    source = SqliteSource("app", path, Reader("me"), SqliteOptions(), SystemClock())
    await source.open(MemoryRegistry())
    queries = SqliteQuerySource(path, Reader("me"))
    try:
        yield queries, database
    finally:
        await queries.close()
        await source.close()
        database.close()


async def marks(queries, table, within, rows_max):
    """Return the marks of the rows of an interval, read page by page."""
    found = []
    while True:
        page = await queries.page(TableName("app", table), within, rows_max=rows_max, timeout_s=5.0)
        found += [msgspec.json.decode(image)["mark"] for image in page.rows().images]
        if page.end or page.last is None:
            return found
        within = KeyInterval(page.last, within.through)


@pytest.mark.parametrize("table", TABLES)
async def test_runs_of_keys_hold_each_row_once_whatever_is_null(tmp_path, table):
    everything = list(range(len(TABLES[table][1])))
    async with capturing(tmp_path / "app.db") as (queries, _):
        for rows, rows_max in product([1, 2, 3, 7, 1000], [1, 2, 5, 1000]):
            cuts = await queries.cut(TableName("app", table), KeyInterval(), rows=rows, count=1000)
            assert len(cuts) <= len(everything) // rows
            intervals = [KeyInterval(*bounds) for bounds in pairwise([None, *cuts, None])]
            runs = [await marks(queries, table, within, rows_max) for within in intervals]
            assert sorted(chain.from_iterable(runs)) == everything
            assert all(len(run) >= rows for run in runs[:-1])
            assert len(runs[-1]) < rows


@pytest.mark.parametrize("table", TABLES)
async def test_an_interval_is_cut_where_it_ends(tmp_path, table):
    name, everything = TableName("app", table), list(range(len(TABLES[table][1])))
    async with capturing(tmp_path / "app.db") as (queries, _):
        ends = await queries.cut(name, KeyInterval(), rows=5, count=1000)
        found = []
        for after, through in pairwise([None, *ends, None]):
            inner = await queries.cut(name, KeyInterval(after, through), rows=2, count=1000)
            bounds = [after, *(cut for cut in inner if cut != through), through]
            for within in map(KeyInterval, bounds, bounds[1:]):
                found += await marks(queries, table, within, 3)
        assert sorted(found) == everything


async def test_a_key_that_no_row_has_bounds_an_interval_too(tmp_path):
    async with capturing(tmp_path / "app.db") as (queries, _):
        found = [
            await marks(queries, "partly", KeyInterval(after, through), 4)
            for after, through in pairwise([None, '["B",null]', '["b",null]', "[null,null]", None])
        ]
    rows = TABLES["partly"][1]
    texts = [{rows[mark][0] for mark in some} for some in found]
    assert texts == [{"B"}, {"B", "a"}, set(), {"B", "a", "c"}]
    assert all(rows[mark][1] is None for mark in found[0])


async def test_more_rows_of_one_null_key_than_a_page_holds_are_refused_by_the_name_of_their_table(tmp_path):
    async with capturing(tmp_path / "app.db") as (queries, database):
        add = "INSERT INTO nulls SELECT zeroblob(10000), NULL, NULL FROM pair, pair AS other LIMIT 2500"
        await asyncio.to_thread(lambda: database.execute(add).fetchall())
        with pytest.raises(
            ResultTooLargeError, match="table 'nulls' has too many rows with the same key, part of which is NULL"
        ):
            await marks(queries, "nulls", KeyInterval(), 5)


@pytest.mark.parametrize(
    "bound",
    [
        "",
        "[",
        "[" * 10_000,
        "{}",
        "[]",
        "[1,2,3]",
        "[9223372036854775808,1]",
        "[-9223372036854775809,1]",
        '[{"t":"f64","v":"NaN"},1]',
        '[{"t":"dec","v":"1"},1]',
        '[{"t":"date","iso":"2020-01-01"},1]',
        "[[1],1]",
    ],
    ids=lambda bound: bound[:30],
)
async def test_what_no_row_can_have_for_a_key_bounds_nothing(tmp_path, bound):
    async with capturing(tmp_path / "app.db") as (queries, _):
        for within in (KeyInterval(bound, None), KeyInterval(None, bound)):
            with pytest.raises(InvalidValueError, match="not a key of table 'pair'"):
                await queries.page(TableName("app", "pair"), within, rows_max=5, timeout_s=5.0)
            with pytest.raises(InvalidValueError, match="not a key of table 'pair'"):
                await queries.cut(TableName("app", "pair"), within, rows=1, count=1)


async def test_a_page_ends_soon_after_it_is_full_however_large_rows_are(tmp_path):
    rows = "WITH RECURSIVE c(x) AS (VALUES (1) UNION ALL SELECT x + 1 FROM c WHERE x < 60)"
    add = f"{rows} INSERT INTO pair SELECT zeroblob(1048576), 'zz', x FROM c"
    async with capturing(tmp_path / "app.db") as (queries, database):
        await asyncio.to_thread(lambda: database.execute(add).fetchall())
        page = await queries.page(TableName("app", "pair"), KeyInterval('["zz",0]'), rows_max=1000, timeout_s=5.0)
    assert 16 <= len(page.rows().keys) <= 32
    assert not page.end


async def test_the_largest_cells_are_read_too(tmp_path):
    async with capturing(tmp_path / "app.db") as (queries, database):
        add = "INSERT INTO pair VALUES (zeroblob(20000000), 'zz', 1)"
        await asyncio.to_thread(lambda: database.execute(add).fetchall())
        page = await queries.page(TableName("app", "pair"), KeyInterval('["zz",0]'), rows_max=5, timeout_s=5.0)
    assert [len(image) > 20_000_000 for image in page.rows().images] == [True]
