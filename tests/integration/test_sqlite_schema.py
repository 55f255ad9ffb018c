"""Schema changes: while capture runs, while it is down, and through the command that lifts our triggers."""

import apsw
import pytest

from sqlite_capture import ApswWriter, StdlibWriter, agrees, captured
from tailrace.model.errors import InvalidRequestError, SourceStateError
from tailrace.source.sqlite import exec_ddl, set_up, status

T = "CREATE TABLE t(id INTEGER PRIMARY KEY, u TEXT UNIQUE, v)"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "app.db"


@pytest.fixture
def writer(path):
    made = StdlibWriter(path)
    made.run("PRAGMA journal_mode = wal")
    made.run("PRAGMA synchronous = off")
    yield made
    made.close()


@pytest.fixture(params=["running", "down"])
def during(request, path, writer):
    """Return a function that runs steps while capture runs or is down, and returns the changes they caused."""

    async def run(tables, steps, count):
        writer.run(tables)
        async with captured(path) as first:
            if request.param == "running":
                for step in steps:
                    writer.run(step)
                return await _settled(first, count)
        for step in steps:
            writer.run(step)
        async with captured(path, resumes=first) as second:
            return await _settled(second, count)

    async def _settled(capturing, count):
        database = apsw.Connection(str(path))
        changes = await capturing.changes_of(count)
        await capturing.until(lambda: agrees(capturing, database))
        database.close()
        assert len(changes) == count
        return changes

    return run


async def test_a_table_made_later_comes_with_its_text_and_all_its_rows(during):
    changes = await during(T, ["CREATE TABLE n(x PRIMARY KEY); INSERT INTO n VALUES('a')"], 2)
    assert changes == [
        ("schema", "n", [], None, "CREATE TABLE n(x PRIMARY KEY)"),
        ("insert", "n", ["a"], None, {"x": "a"}),
    ]


async def test_a_dropped_table_is_a_schema_change_with_the_statement(during):
    assert await during(T, ["DROP TABLE t"], 1) == [("schema", "t", [], None, 'DROP TABLE "t"')]


async def test_rows_of_a_dropped_table_that_nobody_had_read_still_come_before_the_drop(during):
    changes = await during(T, ["INSERT INTO t VALUES(1, 'a', 1); DELETE FROM t; DROP TABLE t"], 3)
    assert [change[0] for change in changes] == ["insert", "delete", "schema"]


async def test_an_added_column_is_a_schema_change_and_later_rows_have_it(during):
    changes = await during(
        f"{T}; INSERT INTO t VALUES(1, 'a', 1)", ["ALTER TABLE t ADD COLUMN w", "UPDATE t SET v = 2 WHERE id = 1"], 2
    )
    assert {change[0] for change in changes} == {"schema", "update"}


async def test_a_value_written_to_an_added_column_before_capture_noticed_is_not_lost(path, writer):
    writer.run(T)
    async with captured(path) as first:
        pass
    writer.run("ALTER TABLE t ADD COLUMN w; INSERT INTO t VALUES(1, 'a', 1, 'w'), (2, 'b', 2, NULL)")
    async with captured(path, resumes=first) as second:
        changes = await second.changes_of(4)
        old = {"id": 1, "u": "a", "v": 1}
        assert changes == [
            ("insert", "t", [1], None, old),
            ("insert", "t", [2], None, {"id": 2, "u": "b", "v": 2}),
            ("schema", "t", [], None, "CREATE TABLE t(id INTEGER PRIMARY KEY, u TEXT UNIQUE, v, w)"),
            ("update", "t", [1], {**old, "w": None}, {**old, "w": "w"}),
        ]


async def test_the_default_of_an_added_column_reaches_the_rows_that_were_there(path, writer):
    writer.run(f"{T}; INSERT INTO t VALUES(1, 'a', 1)")
    async with captured(path) as capturing:
        writer.run("ALTER TABLE t ADD COLUMN w DEFAULT 5")
        changes = await capturing.changes_of(2)
        assert changes[1][0] == "update"
        assert changes[1][4]["w"] == 5


async def test_a_renamed_column_is_a_schema_change_and_rows_with_a_value_come_under_the_new_name(path, writer):
    writer.run(f"{T}; INSERT INTO t VALUES(1, 'a', 1), (2, 'b', NULL)")
    async with captured(path) as capturing:
        writer.run("ALTER TABLE t RENAME COLUMN v TO w")
        new = {"id": 1, "u": "a", "w": 1}
        assert await capturing.changes_of(2) == [
            ("schema", "t", [], None, "CREATE TABLE t(id INTEGER PRIMARY KEY, u TEXT UNIQUE, w)"),
            ("update", "t", [1], {**new, "w": None}, new),
        ]
        writer.run("REPLACE INTO t VALUES(1, 'c', 2)")
        assert (await capturing.changes_of(3))[2] == ("update", "t", [1], new, {"id": 1, "u": "c", "w": 2})


async def test_a_renamed_key_comes_with_every_row_and_no_row_changes_its_key(path, writer):
    writer.run(f"{T}; INSERT INTO t VALUES(1, 'a', 1), (2, 'b', NULL)")
    async with captured(path) as capturing:
        writer.run("ALTER TABLE t RENAME COLUMN id TO number")
        changes = await capturing.changes_of(3)
        assert [change[:3] for change in changes[1:]] == [("update", "t", [1]), ("update", "t", [2])]
        assert changes[1][4] == {"number": 1, "u": "a", "v": 1}


async def test_columns_that_exchange_their_names_come_with_both_values(during):
    changes = await during(
        f"{T}; INSERT INTO t VALUES(1, 'a', 1)",
        [
            "BEGIN IMMEDIATE; ALTER TABLE t RENAME COLUMN u TO x; ALTER TABLE t RENAME COLUMN v TO u; "
            "ALTER TABLE t RENAME COLUMN x TO v; COMMIT"
        ],
        2,
    )
    assert changes[1] == ("update", "t", [1], {"id": 1, "v": 1, "u": "a"}, {"id": 1, "v": "a", "u": 1})


async def test_a_renamed_table_is_dropped_under_its_old_name_and_comes_under_the_new_one(path, writer):
    writer.run(f"{T}; INSERT INTO t VALUES(1, 'a', 1)")
    async with captured(path) as capturing:
        writer.run("ALTER TABLE t RENAME TO s")
        changes = await capturing.changes_of(3)
        assert [change[:2] for change in changes] == [("schema", "t"), ("schema", "s"), ("insert", "s")]
        writer.run("REPLACE INTO s VALUES(1, 'b', 2)")
        assert (await capturing.changes_of(4))[3][:2] == ("update", "s")


async def test_two_tables_that_swap_their_names_are_told_apart(during):
    changes = await during(
        "CREATE TABLE a(x PRIMARY KEY); CREATE TABLE b(x PRIMARY KEY)",
        [
            "INSERT INTO a VALUES('was a'); INSERT INTO b VALUES('was b')",
            """BEGIN IMMEDIATE; ALTER TABLE a RENAME TO c; ALTER TABLE b RENAME TO a; ALTER TABLE c RENAME TO b;
               COMMIT""",
        ],
        8,
    )
    assert ("insert", "a", ["was b"], None, {"x": "was b"}) in changes
    assert ("insert", "b", ["was a"], None, {"x": "was a"}) in changes


async def test_a_table_rebuilt_by_a_migration_is_sent_anew(during):
    changes = await during(
        T,
        [
            "INSERT INTO t VALUES(1, 'a', 1)",
            """BEGIN IMMEDIATE; CREATE TABLE t_new(id INTEGER PRIMARY KEY, u TEXT, v NOT NULL DEFAULT 0, w);
               INSERT INTO t_new SELECT id, u, v, 'new' FROM t; DROP TABLE t; ALTER TABLE t_new RENAME TO t; COMMIT""",
            "INSERT INTO t VALUES(2, 'b', 2, 'later')",
        ],
        5,
    )
    assert [change[0] for change in changes if change[0] == "schema"] == ["schema", "schema"]
    assert changes[1] == ("schema", "t", [], None, 'DROP TABLE "t"')
    assert changes[3] == ("insert", "t", [1], None, {"id": 1, "u": "a", "v": 1, "w": "new"})


async def test_schema_versions_count_from_one_for_each_table(path, writer):
    writer.run(T)
    async with captured(path) as capturing:
        writer.run("ALTER TABLE t ADD COLUMN w; CREATE TABLE s(x)")
        await capturing.changes_of(2)
        versions = [(schema.table.name, schema.version) for schema in capturing.registry.schemas.values()]
        assert sorted(versions) == [("s", 1), ("t", 1), ("t", 2)]
        assert {schema.table.name: schema.version for schema in capturing.source.tables()} == {"s": 1, "t": 2}


async def test_an_index_added_later_is_minded_by_replace(path, writer):
    writer.run("CREATE TABLE t(id INTEGER PRIMARY KEY, u)")
    async with captured(path) as capturing:
        writer.run("CREATE UNIQUE INDEX tu ON t(u)")
        writer.run("INSERT INTO t VALUES(1, 'a')")
        await capturing.changes_of(1)
        writer.run("REPLACE INTO t VALUES(2, 'a')")
        assert [change[0] for change in await capturing.changes_of(3)] == ["insert", "delete", "insert"]


@pytest.mark.parametrize(
    "ddl",
    [
        "CREATE VIEW another AS SELECT 1",
        "DROP VIEW v",
        "BEGIN; DROP VIEW v; CREATE VIEW v AS SELECT id FROM t; COMMIT",
    ],
)
async def test_other_views_are_one_schema_change(path, writer, ddl):
    writer.run("CREATE TABLE t(id INTEGER PRIMARY KEY, v); CREATE VIEW v AS SELECT v FROM t")
    async with captured(path) as capturing:
        writer.run(ddl)
        (change,) = await capturing.changes_of(1)
        assert change[:2] == ("schema", "t")
        writer.run("INSERT INTO t VALUES(1, 2)")
        assert [change[0] for change in await capturing.changes_of(2)] == ["schema", "insert"]


async def test_indexes_made_and_dropped_are_no_change_of_a_table(path, writer):
    writer.run("CREATE TABLE t(id INTEGER PRIMARY KEY, v); CREATE INDEX old ON t(v)")
    async with captured(path) as capturing:
        writer.run("CREATE INDEX i ON t(v)")
        writer.run("INSERT INTO t VALUES(1, 2)")
        await capturing.changes_of(1)
        writer.run("DROP INDEX old")
        writer.run("INSERT INTO t VALUES(2, 2)")
        assert [change[0] for change in await capturing.changes_of(2)] == ["insert", "insert"]


async def test_our_triggers_dropped_by_somebody_are_noticed_and_nothing_is_lost(path, writer):
    writer.run(T)
    async with captured(path) as capturing:
        names = [name for (name,) in writer.run("SELECT name FROM sqlite_schema WHERE type = 'trigger'")]
        writer.run(
            "BEGIN IMMEDIATE;"
            + ";".join(f"DROP TRIGGER {name}" for name in names)
            + "; INSERT INTO t VALUES(1, 'a', 1); COMMIT"
        )
        database = apsw.Connection(str(path))
        await capturing.until(lambda: capturing.drafts and agrees(capturing, database))
        writer.run("INSERT INTO t VALUES(2, 'b', 2)")
        await capturing.until(lambda: len(capturing.replica.tables["t"]) == 2)
        database.close()


async def test_dropping_a_column_is_refused_by_sqlite_and_possible_through_exec(path, writer):
    writer.run(f"{T}; INSERT INTO t VALUES(1, 'a', 1)")
    async with captured(path) as capturing:
        with pytest.raises(apsw.SQLError, match="_tailrace_"):
            writer.run("ALTER TABLE t DROP COLUMN v")
        exec_ddl(path, "-- away with it\nALTER TABLE t DROP COLUMN v;")
        writer.run("INSERT INTO t VALUES(2, 'b')")
        assert await capturing.changes_of(2) == [
            ("schema", "t", [], None, "CREATE TABLE t(id INTEGER PRIMARY KEY, u TEXT UNIQUE)"),
            ("insert", "t", [2], None, {"id": 2, "u": "b"}),
        ]


async def test_several_statements_of_exec_send_only_rows_that_differ(path, writer):
    """A column that is dropped, while another takes its name, is not mistaken for it."""
    writer.run("CREATE TABLE t(id INTEGER PRIMARY KEY, a, b, c); INSERT INTO t VALUES(1, 'a', 'b', 'c')")
    async with captured(path) as capturing:
        exec_ddl(path, "ALTER TABLE t DROP COLUMN c; ALTER TABLE t DROP COLUMN b; ALTER TABLE t RENAME COLUMN a TO b")
        writer.run("UPDATE t SET b = 'new'")
        changes = await capturing.changes_of(5)
        assert [change[0] for change in changes] == ["schema", "schema", "schema", "update", "update"]
        assert changes[3] == ("update", "t", [1], {"id": 1, "b": None}, {"id": 1, "b": "a"})
        assert changes[4] == ("update", "t", [1], {"id": 1, "b": "a"}, {"id": 1, "b": "new"})


async def test_a_column_that_comes_back_empty_is_sent_to_those_who_kept_its_old_values(path, writer):
    writer.run(f"{T}; INSERT INTO t VALUES(1, 'a', 1)")
    async with captured(path) as capturing:
        exec_ddl(path, "ALTER TABLE t DROP COLUMN v; ALTER TABLE t ADD COLUMN v")
        image = {"id": 1, "u": "a", "v": None}
        assert (await capturing.changes_of(3))[2] == ("update", "t", [1], image, image)


async def test_exec_can_rebuild_a_table_whose_triggers_were_lifted(path):
    writer = ApswWriter(path)
    writer.run(f"{T}; INSERT INTO t VALUES(1, 'a', 1)")
    async with captured(path) as capturing:
        exec_ddl(
            path,
            "ALTER TABLE t DROP COLUMN v; DROP TABLE t; CREATE TABLE t(x); "
            "CREATE TRIGGER g AFTER INSERT ON t BEGIN SELECT 1; SELECT 2; END;",
        )
        changes = await capturing.changes_of(3)
        assert [change[0] for change in changes] == ["schema", "schema", "schema"]
        assert changes[1][4] == 'DROP TABLE "t"'
    writer.close()


@pytest.mark.parametrize(
    "sql", ["DELETE FROM t", "ALTER TABLE t DROP COLUMN v; UPDATE t SET u = 1", "PRAGMA user_version = 3"]
)
def test_exec_takes_schema_changes_only(path, sql):
    ApswWriter(path).run(T)
    set_up(path)
    with pytest.raises(InvalidRequestError, match="only CREATE, ALTER and DROP"):
        exec_ddl(path, sql)


def test_a_statement_that_sqlite_refuses_leaves_capture_as_it_was(path):
    writer = ApswWriter(path)
    writer.run(T)
    set_up(path)
    before = writer.run("SELECT * FROM sqlite_schema ORDER BY name")
    for sql in ("ALTER TABLE t DROP COLUMN u", "ALTER TABLE nothing ADD COLUMN x"):
        with pytest.raises(InvalidRequestError, match="SQLite rejected"):
            exec_ddl(path, sql)
    assert writer.run("SELECT * FROM sqlite_schema ORDER BY name") == before
    writer.close()


def test_exec_without_capture_says_so(path):
    ApswWriter(path).run(T)
    with pytest.raises(SourceStateError, match="not set up"):
        exec_ddl(path, "ALTER TABLE t DROP COLUMN v")


def test_a_wider_table_widens_the_change_table(path):
    writer = ApswWriter(path)
    writer.run("CREATE TABLE a(x)")
    set_up(path)
    writer.run("CREATE TABLE b(c0 PRIMARY KEY, c1, c2, c3, c4, c5, c6, c7, c8, c9)")
    set_up(path)
    writer.run("INSERT INTO b(c0, c9) VALUES(1, 'last')")
    assert status(path).tables == ("a", "b")
    assert "last" in writer.run("SELECT * FROM _tailrace_change ORDER BY id DESC LIMIT 1")[0]
    writer.close()
