"""SQLite's traps, each written by both libraries: ours in this process and Python's own in another."""

import math

import apsw
import pytest

from sqlite_capture import ApswWriter, StdlibWriter, agrees, captured
from tailrace.source.sqlite import set_up


@pytest.fixture
def path(tmp_path):
    return tmp_path / "app.db"


@pytest.fixture(params=["apsw", "stdlib"])
def writer(request, path):
    made = {"apsw": ApswWriter, "stdlib": StdlibWriter}[request.param](path)
    made.run("PRAGMA journal_mode = wal")
    made.run("PRAGMA synchronous = off")
    yield made
    made.close()


async def capture_of(path, writer, tables, *steps):
    """Return the changes that the steps cause, each step a text of statements."""
    writer.run(tables)
    async with captured(path) as capturing:
        for step in steps:
            writer.run(step)
        writer.run("CREATE TABLE the_end(x)")
        await capturing.until(lambda: "the_end" in capturing.replica.tables)
        found = capturing.changes()
        assert found.pop()[1] == "the_end"
        return found


T = "CREATE TABLE t(id INTEGER PRIMARY KEY, u TEXT UNIQUE, v)"


def row(number, u, v):
    return {"id": number, "u": u, "v": v}


async def test_insert_or_replace_by_primary_key_is_an_update_with_the_replaced_row_before(path, writer):
    assert await capture_of(
        path, writer, T, "INSERT INTO t VALUES(1, 'a', 1)", "INSERT OR REPLACE INTO t VALUES(1, 'b', 2)"
    ) == [
        ("insert", "t", [1], None, row(1, "a", 1)),
        ("update", "t", [1], row(1, "a", 1), row(1, "b", 2)),
    ]


async def test_replace_by_unique_index_deletes_the_replaced_row(path, writer):
    assert await capture_of(
        path, writer, T, "INSERT INTO t VALUES(1, 'a', 1)", "REPLACE INTO t(u, v) VALUES('a', 2)"
    ) == [
        ("insert", "t", [1], None, row(1, "a", 1)),
        ("delete", "t", [1], row(1, "a", 1), None),
        ("insert", "t", [2], None, row(2, "a", 2)),
    ]


async def test_one_replace_can_remove_two_rows(path, writer):
    changes = await capture_of(
        path, writer, T, "INSERT INTO t VALUES(1, 'a', 1), (2, 'b', 2)", "REPLACE INTO t VALUES(1, 'b', 3)"
    )
    assert changes[2:] == [
        ("delete", "t", [2], row(2, "b", 2), None),
        ("update", "t", [1], row(1, "a", 1), row(1, "b", 3)),
    ]


async def test_replace_with_recursive_triggers_tells_of_the_replaced_row_once(path, writer):
    changes = await capture_of(
        path,
        writer,
        T,
        "PRAGMA recursive_triggers = on",
        "INSERT INTO t VALUES(1, 'a', 1)",
        "REPLACE INTO t VALUES(2, 'a', 2)",
        "PRAGMA recursive_triggers = off",
        "REPLACE INTO t VALUES(3, 'a', 3)",
    )
    assert [change[:3] for change in changes] == [
        ("insert", "t", [1]),
        ("delete", "t", [1]),
        ("insert", "t", [2]),
        ("delete", "t", [2]),
        ("insert", "t", [3]),
    ]


async def test_update_or_replace_deletes_the_row_in_the_way(path, writer):
    changes = await capture_of(
        path, writer, T, "INSERT INTO t VALUES(1, 'a', 1), (2, 'b', 2)", "UPDATE OR REPLACE t SET u = 'a' WHERE id = 2"
    )
    assert changes[2:] == [
        ("delete", "t", [1], row(1, "a", 1), None),
        ("update", "t", [2], row(2, "b", 2), row(2, "a", 2)),
    ]


async def test_on_conflict_replace_in_the_schema_is_seen(path, writer):
    changes = await capture_of(
        path,
        writer,
        "CREATE TABLE t(id INTEGER PRIMARY KEY, u TEXT UNIQUE ON CONFLICT REPLACE, v)",
        "INSERT INTO t VALUES(1, 'a', 1)",
        "INSERT INTO t VALUES(2, 'a', 2)",
    )
    assert changes[1:] == [
        ("delete", "t", [1], row(1, "a", 1), None),
        ("insert", "t", [2], None, row(2, "a", 2)),
    ]


@pytest.mark.parametrize(
    ("index", "first", "second", "replaces"),
    [
        ("CREATE UNIQUE INDEX i ON t(lower(u))", "'a'", "'A'", True),
        ("CREATE UNIQUE INDEX i ON t(u COLLATE NOCASE)", "'a'", "'A'", True),
        ("CREATE UNIQUE INDEX i ON t(u COLLATE RTRIM)", "'a'", "'a  '", True),
        ("CREATE UNIQUE INDEX i ON t(u) WHERE v > 1", "'a'", "'a'", True),
        ("CREATE UNIQUE INDEX i ON t(u) WHERE v > 5", "'a'", "'a'", False),
        ("CREATE UNIQUE INDEX i ON t(u, v)", "NULL", "NULL", False),
        ("CREATE UNIQUE INDEX i ON t(u)", "1", "1.0", True),
    ],
)
async def test_unique_indexes_of_every_kind_tell_which_row_was_replaced(path, writer, index, first, second, replaces):
    changes = await capture_of(
        path,
        writer,
        f"CREATE TABLE t(id INTEGER PRIMARY KEY, u, v); {index}",
        f"INSERT INTO t VALUES(1, {first}, 2)",
        f"INSERT OR REPLACE INTO t VALUES(2, {second}, 2)",
    )
    assert [change[0] for change in changes] == (["insert", "delete", "insert"] if replaces else ["insert", "insert"])


async def test_a_null_that_replace_turns_into_the_default_replaces_too(path, writer):
    changes = await capture_of(
        path,
        writer,
        "CREATE TABLE t(id INTEGER PRIMARY KEY, u TEXT NOT NULL DEFAULT 'x' UNIQUE, v)",
        "INSERT INTO t VALUES(1, 'x', 1)",
        "INSERT OR REPLACE INTO t VALUES(2, NULL, 2)",
    )
    assert changes[1:] == [
        ("delete", "t", [1], row(1, "x", 1), None),
        ("insert", "t", [2], None, row(2, "x", 2)),
    ]


async def test_insert_or_ignore_leaves_nothing_behind(path, writer):
    changes = await capture_of(
        path, writer, T, "INSERT INTO t VALUES(1, 'a', 1)", "BEGIN; INSERT OR IGNORE INTO t VALUES(1, 'b', 2); COMMIT"
    )
    assert len(changes) == 1


async def test_an_upsert_is_an_insert_or_an_update(path, writer):
    upsert = "INSERT INTO t VALUES(1, 'a', {0}) ON CONFLICT(u) DO UPDATE SET v = excluded.v"
    assert await capture_of(path, writer, T, upsert.format(1), upsert.format(2)) == [
        ("insert", "t", [1], None, row(1, "a", 1)),
        ("update", "t", [1], row(1, "a", 1), row(1, "a", 2)),
    ]


async def test_an_update_of_the_key_is_a_delete_and_an_insert(path, writer):
    changes = await capture_of(path, writer, T, "INSERT INTO t VALUES(1, 'a', 1)", "UPDATE t SET id = 5")
    assert changes[1:] == [
        ("delete", "t", [1], row(1, "a", 1), None),
        ("insert", "t", [5], None, row(5, "a", 1)),
    ]


async def test_foreign_key_cascades_are_captured(path, writer):
    changes = await capture_of(
        path,
        writer,
        """CREATE TABLE parent(id INTEGER PRIMARY KEY);
           CREATE TABLE child(id INTEGER PRIMARY KEY, parent REFERENCES parent ON DELETE CASCADE ON UPDATE CASCADE)""",
        "PRAGMA foreign_keys = on",
        "INSERT INTO parent VALUES(1), (2)",
        "INSERT INTO child VALUES(10, 1), (20, 2)",
        "UPDATE parent SET id = 3 WHERE id = 1",
        "DELETE FROM parent WHERE id = 2",
    )
    assert ("update", "child", [10], {"id": 10, "parent": 1}, {"id": 10, "parent": 3}) in changes
    assert ("delete", "child", [20], {"id": 20, "parent": 2}, None) in changes


async def test_changes_by_the_users_own_triggers_follow_the_change_that_caused_them(path, writer):
    changes = await capture_of(
        path,
        writer,
        f"""{T}; CREATE TABLE audit(id INTEGER PRIMARY KEY, what);
            CREATE TRIGGER touch AFTER INSERT ON t BEGIN UPDATE t SET v = 'touched' WHERE id = NEW.id; END;
            CREATE TRIGGER note AFTER UPDATE ON t BEGIN INSERT INTO audit(what) VALUES('updated'); END""",
        "INSERT INTO t VALUES(1, 'a', 1)",
    )
    assert [change[:3] for change in changes] == [("insert", "t", [1]), ("update", "t", [1]), ("insert", "audit", [1])]


async def test_a_user_trigger_added_later_does_not_mix_up_the_order(path, writer):
    writer.run(T)
    set_up(path)
    async with captured(path) as capturing:
        position = capturing.after
    writer.run("CREATE TRIGGER touch AFTER INSERT ON t BEGIN UPDATE t SET v = 'touched' WHERE id = NEW.id; END")
    writer.run("INSERT INTO t VALUES(1, 'a', 1)")
    async with captured(path, resumes=capturing, after=position) as again:
        changes = await again.changes_of(2)
        assert [(op, before and before["v"], after["v"]) for op, _, _, before, after in changes] == [
            ("insert", None, 1),
            ("update", 1, "touched"),
        ]
        writer.run("INSERT INTO t VALUES(2, 'b', 1)")
        changes = await again.changes_of(4)
        assert [change[0] for change in changes[2:]] == ["insert", "update"]


async def test_a_before_trigger_that_changes_the_row_itself_gives_a_true_before_image(path, writer):
    changes = await capture_of(
        path,
        writer,
        f"{T}; CREATE TRIGGER mark BEFORE DELETE ON t BEGIN UPDATE t SET v = 'marked' WHERE id = OLD.id; END",
        "INSERT INTO t VALUES(1, 'a', 1)",
        "DELETE FROM t",
    )
    assert changes[1:] == [
        ("update", "t", [1], row(1, "a", 1), row(1, "a", "marked")),
        ("delete", "t", [1], row(1, "a", "marked"), None),
    ]


async def test_delete_without_where_gives_every_row(path, writer):
    changes = await capture_of(path, writer, T, "INSERT INTO t VALUES(1, 'a', 1), (2, 'b', 2)", "DELETE FROM t")
    assert [change[0] for change in changes] == ["insert", "insert", "delete", "delete"]


async def test_what_is_rolled_back_is_never_seen(path, writer):
    changes = await capture_of(
        path,
        writer,
        T,
        "BEGIN; INSERT INTO t VALUES(1, 'a', 1); ROLLBACK",
        """BEGIN; INSERT INTO t VALUES(2, 'b', 2);
           SAVEPOINT s; INSERT INTO t VALUES(3, 'c', 3); UPDATE t SET v = 9; ROLLBACK TO s;
           INSERT INTO t VALUES(4, 'd', 4); COMMIT""",
    )
    assert [change[2] for change in changes] == [[2], [4]]


async def test_writes_through_an_attached_database_are_captured(path, writer, tmp_path):
    writer.run(T)
    other = tmp_path / "other.db"
    async with captured(path) as capturing:
        attaching = StdlibWriter(other)
        attaching.run(f"ATTACH '{path}' AS app; CREATE TABLE local(x)")
        attaching.run("BEGIN; INSERT INTO local VALUES(1); INSERT INTO app.t VALUES(1, 'a', 1); COMMIT")
        assert await capturing.changes_of(1) == [("insert", "t", [1], None, row(1, "a", 1))]
        attaching.close()


async def test_temporary_tables_and_virtual_tables_are_ignored(path, writer):
    changes = await capture_of(
        path,
        writer,
        f"{T}; CREATE VIRTUAL TABLE search USING fts5(body)",
        "CREATE TEMP TABLE scratch(x); INSERT INTO scratch VALUES(1); INSERT INTO search VALUES('word')",
        "INSERT INTO t VALUES(1, 'a', 1)",
    )
    assert [change[1] for change in changes] == ["t"]


@pytest.mark.parametrize("journal", ["delete", "truncate", "persist", "wal"])
async def test_every_journal_mode_is_captured_and_may_be_switched_while_running(path, journal):
    writer = StdlibWriter(path)
    writer.run(f"PRAGMA journal_mode = {journal}")
    writer.run(T)
    async with captured(path) as capturing:
        writer.run("INSERT INTO t VALUES(1, 'a', 1)")
        await capturing.changes_of(1)
        writer.run("INSERT INTO t VALUES(2, 'b', 2)")
        await capturing.changes_of(2)
    writer.run(f"PRAGMA journal_mode = {'wal' if journal != 'wal' else 'delete'}")
    async with captured(path, resumes=capturing) as again:
        writer.run("INSERT INTO t VALUES(3, 'c', 3)")
        assert [change[2] for change in await again.changes_of(1)] == [[3]]
    writer.close()


async def test_switching_to_wal_while_capture_runs_is_followed(path):
    writer = StdlibWriter(path)
    writer.run(T)
    async with captured(path) as capturing:
        writer.run("INSERT INTO t VALUES(1, 'a', 1)")
        await capturing.changes_of(1)
        assert writer.run("PRAGMA journal_mode = wal") == [("wal",)]
        writer.run("INSERT INTO t VALUES(2, 'b', 2)")
        writer.run("INSERT INTO t VALUES(3, 'c', 3)")
        await capturing.changes_of(3)
    writer.close()


async def test_values_keep_their_storage_class_whatever_the_column_says(path, writer):
    changes = await capture_of(
        path,
        writer,
        "CREATE TABLE t(i INTEGER, r REAL, s TEXT, b BLOB, n NUMERIC, x)",
        "INSERT INTO t VALUES('word', 'word', x'00ff', 'word', x'01', 1)",
        "INSERT INTO t VALUES(9223372036854775807, 9e999, 'a', x'', -9223372036854775808, -9e999)",
        "INSERT INTO t VALUES(1.5, 1, 2.5, 3, '12', '12')",
        "INSERT INTO t VALUES(NULL, 9e999 - 9e999, NULL, NULL, NULL, NULL)",
    )
    assert [tuple(change[4].values()) for change in changes] == [
        ("word", "word", b"\x00\xff", "word", b"\x01", 1),
        (2**63 - 1, math.inf, "a", b"", -(2**63), -math.inf),
        (1.5, 1.0, "2.5", 3, 12, "12"),
        (None, None, None, None, None, None),
    ]
    assert isinstance(changes[2][4]["r"], float)


async def test_text_that_is_not_valid_arrives_as_its_bytes(path, writer):
    changes = await capture_of(
        path,
        writer,
        "CREATE TABLE t(id INTEGER PRIMARY KEY, s TEXT)",
        "INSERT INTO t VALUES(1, 'before'), (2, CAST(x'41ff42' AS TEXT)), (3, 'aft' || char(0) || 'er')",
    )
    assert [change[4]["s"] for change in changes] == ["before", b"A\xffB", "aft\x00er"]


async def test_strict_generated_and_huge_values_survive(path, writer):
    changes = await capture_of(
        path,
        writer,
        """CREATE TABLE s(id INTEGER PRIMARY KEY, a ANY, t TEXT) STRICT;
           CREATE TABLE g(id INTEGER PRIMARY KEY, a, v AS (a || '!'), w AS (a + 1) STORED);
           CREATE TABLE h(id INTEGER PRIMARY KEY, b BLOB)""",
        "INSERT INTO s VALUES(1, '12', 'x'), (2, 12, 'y')",
        "INSERT INTO g(a) VALUES(1); UPDATE g SET a = 2",
        "INSERT INTO h VALUES(1, zeroblob(3000000))",
    )
    assert [change[4]["a"] for change in changes[:2]] == ["12", 12]
    assert changes[3][4] == {"id": 1, "a": 2, "v": "2!", "w": 3}
    assert changes[4][4]["b"] == bytes(3_000_000)


async def test_keys_of_every_kind_identify_rows(path, writer):
    changes = await capture_of(
        path,
        writer,
        """CREATE TABLE a(x TEXT PRIMARY KEY); CREATE TABLE b(x, y, z, PRIMARY KEY(z, x));
           CREATE TABLE c(x, y, PRIMARY KEY(y, x)) WITHOUT ROWID; CREATE TABLE d(x); CREATE TABLE e(rowid, x)""",
        "INSERT INTO a VALUES('k'); INSERT INTO b VALUES(1, 2, 3); INSERT INTO c VALUES(1, x'02')",
        "INSERT INTO d(rowid, x) VALUES(7, 'd'); INSERT INTO e VALUES('r', 'e')",
    )
    assert [change[2] for change in changes] == [["k"], [3, 1], [{"t": "bytes", "b64": "Ag=="}, 1], [7], [1]]
    assert changes[4][4] == {"rowid": "r", "x": "e"}


async def test_names_with_quotes_spaces_keywords_and_other_scripts_work(path, writer):
    changes = await capture_of(
        path,
        writer,
        """CREATE TABLE "select ""x"" [y]"("group" INTEGER PRIMARY KEY, "a b""c'd" UNIQUE, [e f], `größe`, "ключ");
           CREATE TABLE 表(列)""",
        """INSERT INTO "select ""x"" [y]" VALUES(1, 2, 3, 4, 5)""",
        """REPLACE INTO "select ""x"" [y]" VALUES(2, 2, 3, 4, 5)""",
        "INSERT INTO 表 VALUES('値')",
    )
    assert changes[1][3] == {"group": 1, "a b\"c'd": 2, "e f": 3, "größe": 4, "ключ": 5}
    assert [change[0] for change in changes] == ["insert", "delete", "insert", "insert"]
    assert changes[3][4] == {"列": "値"}


@pytest.mark.parametrize("columns", [64, 130, 2000])
async def test_wide_tables_are_captured_up_to_the_limit_of_sqlite(path, columns):
    writer = ApswWriter(path)
    names = ",".join(f"c{number}" for number in range(1, columns))
    changes = await capture_of(
        path,
        writer,
        f"CREATE TABLE t(id INTEGER PRIMARY KEY, {names})",
        f"INSERT INTO t VALUES(1, {','.join(str(n) for n in range(1, columns))})",
        f"UPDATE t SET c{columns - 1} = 'last'",
        "REPLACE INTO t(id, c1) VALUES(1, 'replaced')",
    )
    assert [change[0] for change in changes] == ["insert", "update", "update"]
    assert changes[1][3][f"c{columns - 1}"] == columns - 1
    assert changes[2][3][f"c{columns - 1}"] == "last"
    assert changes[2][4]["c1"] == "replaced"
    writer.close()


async def test_vacuum_does_not_renumber_tables_without_a_key(path, writer):
    writer.run("CREATE TABLE t(x)")
    async with captured(path) as capturing:
        writer.run("INSERT INTO t VALUES('a'), ('b'), ('c')")
        writer.run("DELETE FROM t WHERE x = 'b'")
        writer.run("VACUUM")
        writer.run("UPDATE t SET x = 'C' WHERE x = 'c'")
        changes = await capturing.changes_of(5)
        assert changes[4] == ("update", "t", [3], {"x": "c"}, {"x": "C"})


async def test_rows_that_were_there_before_capture_are_known_when_they_change(path, writer):
    changes = await capture_of(path, writer, f"{T}; INSERT INTO t VALUES(1, 'a', 1)", "UPDATE t SET v = 2")
    assert changes == [("update", "t", [1], row(1, "a", 1), row(1, "a", 2))]


async def test_a_table_that_cannot_be_identified_is_refused_by_name(path):
    ApswWriter(path).run("CREATE TABLE odd(rowid, _rowid_, oid)")
    with pytest.raises(Exception, match="odd"):
        set_up(path)


async def test_two_writers_in_two_processes_are_both_captured(path):
    first, second = ApswWriter(path), StdlibWriter(path)
    first.run("PRAGMA journal_mode = wal")
    first.run(T)
    async with captured(path) as capturing:
        for number in range(20):
            (first, second)[number % 2].run(f"INSERT INTO t VALUES({number}, 'u{number}', 0)")
        await capturing.changes_of(20)
        database = apsw.Connection(str(path))
        await capturing.until(lambda: agrees(capturing, database))
        database.close()
    first.close()
    second.close()


async def test_a_writer_that_is_killed_in_a_transaction_leaves_no_trace(path):
    writer = StdlibWriter(path)
    writer.run("PRAGMA journal_mode = wal")
    writer.run(T)
    async with captured(path) as capturing:
        writer.run("INSERT INTO t VALUES(1, 'a', 1)")
        writer.run("BEGIN; INSERT INTO t VALUES(2, 'b', 2)")
        writer.kill()
        other = StdlibWriter(path)
        other.run("INSERT INTO t VALUES(3, 'c', 3)")
        changes = await capturing.changes_of(2)
        assert [change[2] for change in changes] == [[1], [3]]
        other.close()
