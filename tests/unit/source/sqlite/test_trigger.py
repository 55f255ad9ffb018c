from pathlib import Path

import apsw
import pytest

from tailrace.source.sqlite.schema import read_schema
from tailrace.source.sqlite.trigger import keeper_statement, trigger_statements

GOLDEN = Path(__file__).parents[3] / "golden" / "sqlite"

TABLES = {
    "rowid_alias": "CREATE TABLE orders(id INTEGER PRIMARY KEY, code TEXT NOT NULL DEFAULT 'x' UNIQUE, note)",
    "without_rowid": 'CREATE TABLE "a ""b"""(x COLLATE NOCASE, y, z, PRIMARY KEY(y, x)) WITHOUT ROWID',
    "no_key": "CREATE TABLE free(rowid, x)",
    "clever_index": """CREATE TABLE t(a PRIMARY KEY, b, c AS (b + 1));
        CREATE UNIQUE INDEX i ON t(lower(b), c) WHERE b > 0""",
}


def table_of(sql):
    database = apsw.Connection(":memory:")
    database.execute(sql)
    (table,) = read_schema(database).tables.values()
    return table


@pytest.mark.parametrize("name", TABLES)
def test_the_triggers_of_a_table_are_these(name):
    """The texts run inside users' databases: change them knowingly, and write the new ones down."""
    statements = trigger_statements(table_of(TABLES[name]), 7)
    assert "\n\n".join(statements.values()) + "\n" == (GOLDEN / f"{name}.sql").read_text()


@pytest.mark.parametrize("name", TABLES)
def test_sqlite_keeps_the_text_of_a_trigger_as_it_is_written(name):
    database = apsw.Connection(":memory:")
    database.execute(TABLES[name])
    (table,) = read_schema(database).tables.values()
    statements = trigger_statements(table, 7)
    for statement in statements.values():
        database.execute(statement)
    kept = database.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'").fetchall()
    assert dict(kept) == statements


@pytest.mark.parametrize(
    ("sql", "needed"),
    [
        ("CREATE TABLE t(a)", True),
        ("CREATE TABLE t(a PRIMARY KEY)", False),
        ("CREATE TABLE t(a INTEGER PRIMARY KEY)", False),
        ("CREATE TABLE t(a); CREATE INDEX i ON t(a)", False),
        ("CREATE TABLE t(a UNIQUE)", False),
    ],
)
def test_only_tables_whose_row_numbers_vacuum_would_change_get_an_index(sql, needed):
    assert (keeper_statement(table_of(sql), 1) is not None) == needed


@pytest.mark.parametrize(
    ("default", "used"),
    [
        ("'it''s'", True),
        ("-1.5e3", True),
        ("x'00'", True),
        ("CURRENT_TIMESTAMP", True),
        ('"quoted"', False),
        ("(abs(1))", False),
    ],
)
def test_only_defaults_that_mean_the_same_anywhere_are_used(default, used):
    table = table_of(f"CREATE TABLE t(a INTEGER PRIMARY KEY, b NOT NULL DEFAULT {default})")
    assert ("ifnull" in trigger_statements(table, 1)["_tailrace_1_insert_candidate"]) == used
