"""Whatever is done to a database, replaying what was captured gives its tables, commit by commit."""

import asyncio
import contextlib
import os
import tempfile
from pathlib import Path

import apsw
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sqlite_capture import Captured, agrees

EXAMPLES = 400 if os.environ.get("LONG_TESTS") else 50

SCHEMAS = [
    "CREATE TABLE t(a INTEGER PRIMARY KEY, b UNIQUE, c)",
    "CREATE TABLE t(a INTEGER PRIMARY KEY, b UNIQUE ON CONFLICT REPLACE, c)",
    "CREATE TABLE t(a INT PRIMARY KEY NOT NULL, b, c, UNIQUE(b, c))",
    "CREATE TABLE t(a TEXT COLLATE NOCASE, b, c, PRIMARY KEY(a)) WITHOUT ROWID",
    "CREATE TABLE t(a, b, c, PRIMARY KEY(b, a)) WITHOUT ROWID",
    "CREATE TABLE t(a, b, c)",
    "CREATE TABLE t(a, b, c); CREATE UNIQUE INDEX tb ON t(b) WHERE c > 1",
    "CREATE TABLE t(a INTEGER PRIMARY KEY, b, c); CREATE UNIQUE INDEX tb ON t(lower(b), abs(c) DESC)",
    "CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT, c, d AS (b || c) UNIQUE, e AS (c + 1) STORED)",
    "CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT NOT NULL DEFAULT 'b' UNIQUE, c)",
    "CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT UNIQUE, c INTEGER) STRICT",
    "CREATE TABLE t(a REAL PRIMARY KEY NOT NULL, b TEXT COLLATE RTRIM UNIQUE, c BLOB)",
    """CREATE TABLE t(a INTEGER PRIMARY KEY, b UNIQUE, c REFERENCES t(b) ON DELETE CASCADE ON UPDATE CASCADE);
       CREATE TABLE child(id INTEGER PRIMARY KEY, b REFERENCES t(b) ON DELETE SET NULL ON UPDATE CASCADE);
       CREATE TRIGGER children AFTER INSERT ON t BEGIN INSERT OR IGNORE INTO child VALUES(NEW.a, NEW.b); END""",
    """CREATE TABLE t(a INTEGER PRIMARY KEY, b UNIQUE, c);
       CREATE TRIGGER touch AFTER UPDATE OF b ON t BEGIN UPDATE t SET c = 'touched' WHERE a = NEW.a; END;
       CREATE TRIGGER undo AFTER INSERT ON t WHEN NEW.c = 2 BEGIN DELETE FROM t WHERE a = NEW.a; END""",
    """CREATE TABLE t(a INTEGER PRIMARY KEY, b UNIQUE, c);
       CREATE TRIGGER make_room BEFORE INSERT ON t WHEN NEW.c = 1 BEGIN DELETE FROM t WHERE b = NEW.b; END;
       CREATE TRIGGER mark BEFORE INSERT ON t WHEN NEW.c = 2 BEGIN UPDATE t SET c = 'old' WHERE b = NEW.b; END""",
]

VALUES = st.sampled_from(["1", "2", "3", "'a'", "'A'", "'b'", "NULL", "1.5", "2.0", "x'0041'", "-1"])
KEYS = st.sampled_from(["1", "2", "3", "'a'", "'A'", "NULL", "-1"])
CONFLICTS = st.sampled_from(["", "OR REPLACE", "OR REPLACE", "OR IGNORE", "OR FAIL", "OR ABORT"])
COLUMNS = st.sampled_from("abc")

inserts = st.builds("INSERT {} INTO t(a, b, c) VALUES({}, {}, {})".format, CONFLICTS, KEYS, VALUES, VALUES)
two_inserts = st.builds(
    "INSERT {} INTO t(a, b, c) VALUES({}, {}, 1), ({}, {}, 2)".format, CONFLICTS, KEYS, VALUES, KEYS, VALUES
)
upserts = st.builds(
    "INSERT INTO t(a, b, c) VALUES({}, {}, {}) ON CONFLICT {}".format,
    KEYS,
    VALUES,
    VALUES,
    st.sampled_from(["DO NOTHING", "DO UPDATE SET c = 'upserted'", "DO UPDATE SET b = excluded.b, c = excluded.c"]),
)
updates = st.builds("UPDATE {} t SET {} = {} WHERE {} = {}".format, CONFLICTS, COLUMNS, VALUES, COLUMNS, VALUES)
update_all = st.builds("UPDATE {} t SET {} = {}".format, CONFLICTS, COLUMNS, VALUES)
renumber = st.builds("UPDATE {} t SET rowid = {} WHERE rowid = {}".format, CONFLICTS, KEYS, KEYS)
deletes = st.one_of(st.builds("DELETE FROM t WHERE {} = {}".format, COLUMNS, VALUES), st.just("DELETE FROM t"))
statements = st.one_of(inserts, inserts, two_inserts, upserts, updates, updates, update_all, renumber, deletes)
nested = st.builds(
    lambda inside, keep: ["SAVEPOINT s", *inside, "RELEASE s" if keep else "ROLLBACK TO s"],
    st.lists(statements, max_size=3),
    st.booleans(),
)
pieces = st.one_of(statements.map(lambda one: [one]), nested)
bodies = st.lists(pieces, min_size=1, max_size=4).map(lambda parts: [one for part in parts for one in part])
transactions = st.builds(
    lambda body, keep: ["BEGIN IMMEDIATE", *body, "COMMIT" if keep else "ROLLBACK"],
    bodies,
    st.sampled_from([True, True, False]),
)
ddl = st.sampled_from(
    [
        ["ALTER TABLE t ADD COLUMN f"],
        ["ALTER TABLE t ADD COLUMN g DEFAULT 7"],
        ["ALTER TABLE t RENAME COLUMN c TO c2", "ALTER TABLE t RENAME COLUMN c2 TO c"],
        ["ALTER TABLE t RENAME TO t2", "ALTER TABLE t2 RENAME TO t"],
        ["CREATE TABLE IF NOT EXISTS u AS SELECT * FROM t"],
        [
            "BEGIN IMMEDIATE",
            "DROP TABLE IF EXISTS u",
            "CREATE TABLE u(x PRIMARY KEY)",
            "INSERT INTO u VALUES('x')",
            "COMMIT",
        ],
        ["CREATE UNIQUE INDEX IF NOT EXISTS ta ON t(a, c)"],
        ["CREATE TRIGGER IF NOT EXISTS late AFTER UPDATE ON t BEGIN UPDATE t SET c = 'late' WHERE b = NEW.b; END"],
        ["VACUUM"],
    ]
)
steps = st.one_of(transactions, transactions, transactions, statements.map(lambda one: [one]), ddl, st.just("restart"))


def run(database, step):
    for statement in step:
        # a statement that fails is undone, the transaction goes on
        with contextlib.suppress(apsw.ConstraintError, apsw.SQLError, apsw.MismatchError):
            database.execute(statement).fetchall()
    if database.in_transaction:
        database.execute("COMMIT")


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    schema=st.sampled_from(SCHEMAS),
    journal=st.sampled_from(["wal", "delete"]),
    recursive=st.booleans(),
    script=st.lists(steps, min_size=1, max_size=10),
)
def test_replaying_the_commits_gives_the_tables(schema, journal, recursive, script):
    asyncio.run(replay(schema, journal, recursive, script))


async def replay(schema, journal, recursive, script):
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "app.db"
        database = apsw.Connection(str(path))
        database.set_busy_timeout(60_000)
        database.execute(f"PRAGMA journal_mode = {journal}; PRAGMA synchronous = off; PRAGMA foreign_keys = on")
        database.execute(f"PRAGMA recursive_triggers = {'on' if recursive else 'off'}")
        database.execute(schema)
        capturing = Captured(path)
        await capturing.start()
        for step in script:
            if step == "restart":
                capturing = await restarted(capturing)
            else:
                await asyncio.to_thread(run, database, step)
                await agreement(capturing, database)
        await agreement(capturing, database)
        await capturing.stop()
        database.close()


async def agreement(capturing, database):
    await capturing.until(lambda: agrees(capturing, database))


async def restarted(capturing):
    await capturing.stop()
    again = Captured(capturing.path, resumes=capturing)
    await again.start()
    return again
