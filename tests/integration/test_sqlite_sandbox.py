"""Facts about the limits of clients' SQL: a table of attacks, run against a real database."""

import asyncio

import apsw
import pytest

from tailrace.model.errors import InvalidRequestError, QueryTimeoutError, ResultTooLargeError
from tailrace.source.base import Reader, RunLimits
from tailrace.source.sqlite.capture_setup import set_up
from tailrace.source.sqlite.connection import create_database
from tailrace.source.sqlite.query import SqliteQuerySource
from tailrace.source.sqlite.query_catalog import QueryCatalog
from tailrace.source.sqlite.statement import SqliteStatementRunner

READER = Reader("log")
LIMITS = RunLimits(rows_max=100, bytes_max=100_000, timeout_s=60)
ENDLESS = "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT max(n) FROM c"

READS = {
    "by a common table expression of our name": "WITH _tailrace_x AS (SELECT * FROM _tailrace_reader) "
    "SELECT * FROM _tailrace_x",
    "by one that is materialized": "WITH _tailrace_1_insert AS MATERIALIZED (SELECT name FROM _tailrace_reader) "
    "SELECT * FROM _tailrace_1_insert",
    "by a sub-query of our name": "SELECT * FROM (SELECT * FROM _tailrace_reader) AS _tailrace_x",
    "in capitals": "SELECT * FROM _TAILRACE_READER",
    "in brackets": "SELECT * FROM [_tailrace_reader]",
    "in back quotes": "SELECT * FROM `_Tailrace_reader`",
    "in string quotes": "SELECT * FROM '_tailrace_reader'",
    "with a schema": 'SELECT * FROM main . "_tailrace_reader"',
    "with comments between": "SELECT/**/*/**/FROM/**/main./**/_tailrace_reader",
    "without a column": "SELECT count(*) FROM _tailrace_reader",
    "without a value": "SELECT 1 FROM _tailrace_reader",
    "its row number": "SELECT rowid FROM _tailrace_reader",
    "whether there is one": "SELECT EXISTS(SELECT 1 FROM _tailrace_reader)",
    "in a join": "SELECT item.id FROM item, _tailrace_reader",
    "in a condition": "SELECT id FROM item WHERE id IN (SELECT confirmed FROM _tailrace_reader)",
    "by IN and a name": "SELECT id FROM item WHERE id IN _tailrace_reader",
    "as a recursive step": "WITH RECURSIVE c(n) AS (SELECT 1 UNION SELECT confirmed FROM _tailrace_reader, c) "
    "SELECT n FROM c",
    "by EXPLAIN": "EXPLAIN SELECT * FROM _tailrace_reader",
    "after a comment": "-- SELECT 1\nSELECT * FROM _tailrace_reader",
    "after another statement": "SELECT 1; SELECT * FROM _tailrace_reader",
    "the pages of the file": "SELECT * FROM dbstat",
    "the pages of the file, directly": "SELECT * FROM sqlite_dbpage",
    "other statements": "SELECT * FROM sqlite_stmt",
    "a tokenizer": "SELECT * FROM fts3tokenize",
    "where the file is": "SELECT * FROM pragma_database_list",
    "where the file is, by a pragma": "PRAGMA database_list",
    "a library": "SELECT load_extension('x')",
    "a library, in capitals": "SELECT \"LOAD_EXTENSION\"('x')",
    "a tokenizer's address": "SELECT fts3_tokenizer('simple')",
    "the server's log": "SELECT sqlite_log(1, 'x')",
    "another file": "ATTACH 'other.db' AS other",
    "a NUL character": "SELECT 1\0; DROP TABLE item",
    "half a character": "SELECT '\ud800'",
    "brackets without end": "SELECT " + "(" * 100_000 + "1" + ")" * 100_000,
    "a chain without end": "SELECT 1" + "+1" * 200_000,
    "columns without end": "SELECT " + ",".join("1" for _ in range(100_000)),
    "selects without end": " UNION ALL ".join("SELECT 1" for _ in range(5_000)),
    "tables without end": "SELECT 1 FROM " + ",".join(f"item AS t{n}" for n in range(1000)),
    "a long text": "SELECT '" + "x" * (2 << 20) + "'",
}
"""What neither a query nor a statement may do."""

WRITES = {
    "our tables": "DELETE FROM _tailrace_change",
    "our tables, quoted": "UPDATE main.[_Tailrace_Reader] SET confirmed = 0",
    "our tables, by a common table expression": "WITH _tailrace_1_insert AS (SELECT 1, 2) "
    "INSERT INTO _tailrace_change(h, c0) SELECT * FROM _tailrace_1_insert",
    "our tables, with RETURNING": "DELETE FROM _tailrace_reader RETURNING name",
    "what it reads of ours, with RETURNING": "INSERT INTO item(id) VALUES(7) "
    "RETURNING (SELECT name FROM _tailrace_reader)",
    "what it reads of ours, in a conflict": "INSERT INTO item(id) VALUES(1) ON CONFLICT(id) DO UPDATE "
    "SET name = (SELECT name FROM _tailrace_reader)",
    "what it reads of ours, from a FROM": "UPDATE item SET name = r.name FROM _tailrace_reader AS r",
    "a copy of our table": "CREATE TABLE leak AS SELECT * FROM _tailrace_reader",
    "a copy, after a statement that our triggers stop": "ALTER TABLE item DROP COLUMN name; "
    "CREATE TABLE leak AS SELECT * FROM _tailrace_reader",
    "another statement after one that our triggers stop": "ALTER TABLE item DROP COLUMN name; DROP TABLE other",
    "a comment before another statement": "ALTER TABLE item DROP COLUMN name /* ; */ ; -- _\nDROP TABLE other",
    "an error that names us": 'SELECT "_tailrace_x" FROM item; DROP TABLE other',
    "a table's name": "ALTER TABLE item RENAME TO _tailrace_q",
    "a table's name, quoted": 'ALTER TABLE item RENAME TO "_TAILRACE_q"',
    "a table of our name": "CREATE TABLE _tailrace_x(a)",
    "a table of our name, quoted": "CREATE TABLE [_TailRace_x](a)",
    "a view of our name": "CREATE VIEW _tailrace_v AS SELECT 1",
    "an index of our name": "CREATE INDEX _tailrace_i ON item(name)",
    "an index on ours": "CREATE INDEX i ON _tailrace_change(h)",
    "a column of our name": "ALTER TABLE item ADD COLUMN _tailrace_c",
    "a view of ours": "CREATE VIEW peek AS SELECT * FROM _tailrace_reader",
    "a view of ours in a common table expression": "CREATE VIEW peek AS "
    "WITH x AS (SELECT * FROM '_Tailrace_reader') SELECT * FROM x",
    "a trigger that writes to ours": "CREATE TRIGGER t AFTER INSERT ON item BEGIN DELETE FROM _tailrace_change; END",
    "a trigger that writes to ours, quoted": "CREATE TRIGGER t AFTER INSERT ON item "
    "BEGIN DELETE FROM [_TAILRACE_change]; END",
    "a trigger that reads ours": "CREATE TRIGGER t AFTER INSERT ON item "
    "BEGIN UPDATE item SET name = (SELECT name FROM _tailrace_reader); END",
    "a trigger instead of a view's insert": "CREATE TRIGGER t INSTEAD OF INSERT ON seen "
    "BEGIN DELETE FROM _tailrace_reader; END",
    "a trigger on ours": "CREATE TRIGGER t AFTER INSERT ON _tailrace_change BEGIN SELECT 1; END",
    "a trigger of our name": "CREATE TRIGGER _tailrace_x AFTER INSERT ON item BEGIN SELECT 1; END",
    "our trigger": "DROP TRIGGER _tailrace_1_insert",
    "a reference to ours": "CREATE TABLE child(a REFERENCES _tailrace_change ON DELETE CASCADE)",
    "a table beside": "CREATE TABLE temp.item(a)",
    "a temporary table": "CREATE TEMPORARY TABLE item(a)",
    "a temporary view": "CREATE VIEW temp.item AS SELECT 1",
    "a temporary trigger": "CREATE TRIGGER temp.t AFTER INSERT ON main.item BEGIN SELECT 1; END",
    "a temporary index": "CREATE INDEX temp.i ON item(name)",
    "a virtual table": "CREATE VIRTUAL TABLE mine USING dbstat",
    "a text index": "CREATE VIRTUAL TABLE item_text USING fts5(name)",
    "the schema": "UPDATE sqlite_schema SET sql = 'CREATE TABLE item(a)'",
    "the schema, by a pragma": "PRAGMA writable_schema = on",
    "the schema, by a function": "SELECT * FROM pragma_writable_schema(1)",
    "the journal": "PRAGMA journal_mode = off",
    "a file": "VACUUM INTO 'copy.db'",
    "the file": "VACUUM",
    "a transaction": "COMMIT",
    "a transaction by a name": "RELEASE ddl",
    "a transaction, then more": "ROLLBACK; DROP TABLE other",
    "a trigger on keys and values": "CREATE TRIGGER t AFTER INSERT ON kv BEGIN INSERT INTO item(id) "
    + ENDLESS
    + "; END",
    "an index on keys and values": "CREATE INDEX i ON kv(hex(value))",
    "a column of keys and values": "ALTER TABLE kv ADD COLUMN more AS (hex(value))",
    "a table that becomes keys and values": "ALTER TABLE item RENAME TO KV",
}
"""What a statement may not do, beyond `READS`."""


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "app.db"
    create_database(path)
    with apsw.Connection(str(path)) as database:
        database.execute("CREATE TABLE item(id INTEGER PRIMARY KEY, name TEXT)")
        database.execute("CREATE TABLE other(id INTEGER PRIMARY KEY); CREATE VIEW seen AS SELECT * FROM item")
        database.execute("CREATE TABLE kv(key BLOB PRIMARY KEY, value BLOB NOT NULL, expires_time_us INTEGER)")
        database.execute("INSERT INTO item VALUES(1, 'a')")
    set_up(path)
    return path


@pytest.fixture
async def runner(path):
    made = SqliteStatementRunner(path, READER)
    yield made
    await made.close()


@pytest.fixture
async def queries(path):
    made = SqliteQuerySource(path, READER, runs_max=1)
    yield made
    await made.close()


def dump(path):
    """Return all that a database and its directory have, but how far readers are."""
    database = apsw.Connection(str(path))
    schema = database.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY name").fetchall()
    tables = [name for type_, name, _, _ in schema if type_ == "table" and name != "_tailrace_reader"]
    rows = {name: database.execute(f'SELECT * FROM "{name}"').fetchall() for name in tables}
    return schema, rows, sorted(file.name for file in path.parent.iterdir() if not file.name.startswith("app.db"))


async def test_no_query_leaves_its_limits(queries, path):
    before = dump(path)
    for attack, sql in (READS | WRITES).items():
        with pytest.raises((InvalidRequestError, ResultTooLargeError)) as refused:
            await queries.run(sql, (), LIMITS)
        assert str(path.parent) not in str(refused.value), attack
        assert dump(path) == before, attack
    assert (await queries.run("SELECT * FROM seen", (), LIMITS)).rows == [(1, "a")]


async def test_no_statement_leaves_its_limits(runner, path):
    before = dump(path)
    for attack, sql in (READS | WRITES).items():
        with pytest.raises((InvalidRequestError, ResultTooLargeError)) as refused:
            await runner.execute(sql, [], LIMITS)
        assert str(path.parent) not in str(refused.value), attack
        assert dump(path) == before, attack
    result = await runner.execute("INSERT INTO item VALUES(2, ?)", ["b"], LIMITS)
    assert result.changes == 1


ALLOWED = [
    "CREATE TABLE fresh(id INTEGER PRIMARY KEY, name TEXT DEFAULT 'tailrace', twice AS (id * 2))",
    "INSERT INTO fresh(id, name) VALUES(1, '_tailrace_change') ON CONFLICT DO NOTHING RETURNING name",
    "CREATE TRIGGER follow AFTER INSERT ON item BEGIN INSERT INTO fresh(name) VALUES(NEW.name); END",
    "INSERT INTO item VALUES(2, 'b')",
    "ALTER TABLE fresh RENAME TO renamed",
    "ALTER TABLE renamed RENAME COLUMN name TO title",
    "DROP TRIGGER follow",
    "DROP VIEW seen",
    "ALTER TABLE item DROP COLUMN name",
    "ALTER TABLE kv RENAME TO values_of_old",
    "DROP TABLE values_of_old",
    "PRAGMA table_info(item)",
    "REINDEX",
    "WITH c AS (SELECT id FROM item) SELECT count(*) FROM c, json_each('[1]')",
]


async def test_what_clients_may_do_still_works(runner):
    for sql in ALLOWED:
        await runner.execute(sql, [], LIMITS)


async def test_a_column_is_dropped_by_that_statement_alone_and_in_time(runner, path):
    await runner.execute("DROP VIEW seen", [], LIMITS)
    await runner.execute("ALTER TABLE item DROP COLUMN name", [], LIMITS)
    assert (await runner.execute("SELECT * FROM item", [], LIMITS)).columns == ("id",)
    await runner.execute("INSERT INTO item VALUES(2)", [], LIMITS)
    changes = apsw.Connection(str(path)).execute("SELECT count(*) FROM _tailrace_change WHERE c0 = 2").get
    assert changes == 1  # the triggers are back


async def test_the_clock_covers_what_follows_a_statement_that_our_triggers_stop(runner, path):
    await runner.execute("DROP VIEW seen", [], LIMITS)
    with pytest.raises((InvalidRequestError, QueryTimeoutError)):
        await runner.execute(
            f"ALTER TABLE item DROP COLUMN name; CREATE TABLE x AS {ENDLESS}", [], RunLimits(10, 1000, 1.0)
        )
    other = apsw.Connection(str(path))
    other.execute("INSERT INTO item(id) VALUES(5)")  # nobody holds a lock


async def test_views_of_views_stop_neither_capture_nor_the_catalog(path):
    database = apsw.Connection(str(path))
    database.execute("CREATE VIEW v0 AS SELECT id FROM item")
    for number in range(1, 40):
        database.execute(f"CREATE VIEW v{number} AS SELECT x.id FROM v{number - 1} AS x, v{number - 1} AS y")
    async with asyncio.timeout(60):
        await asyncio.to_thread(set_up, path)
        catalog = await asyncio.to_thread(QueryCatalog, apsw.Connection(str(path)))
    assert catalog.view("v39") is not None
