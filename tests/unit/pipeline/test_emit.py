"""What a project of Spark Declarative Pipelines looks like."""

import ast
from pathlib import Path

import pytest

from tailrace.meta.pipeline import Definition, Mode
from tailrace.model.errors import ConfigError, SinkRefusedError
from tailrace.model.table import Column, Identity, Kind, TableName, TableSchema
from tailrace.pipeline.emit import project

GOLDEN = Path(__file__).parents[2] / "golden" / "emit"
ID = Column("id", Kind.I64)
ORDERS = TableSchema(TableName("shop", "orders"), 1, (ID, Column("qty", Kind.I64)), ("id",))
NOTES = TableSchema(TableName("shop", "Two Words"), 1, (Column("text", Kind.STR),), ())
SERVER = "http://127.0.0.1:8080"


def definition(**members):
    given = {"name": "lake", "source": "shop", "tables": ("orders",), "sink": "delta:///lake/{table}", "server": SERVER}
    return Definition(**(given | members))


PROJECTS = {
    "current": (definition(tables=("orders", "Two Words")), Mode.CURRENT, [ORDERS, NOTES]),
    "history": (definition(sink="catalog:lake.shop.copy_of_{table}?using=iceberg"), Mode.HISTORY, [ORDERS]),
    "append": (definition(sink="parquet:///backup"), Mode.APPEND, [ORDERS]),
    "function": (definition(transform_function="shop.rules:totals"), Mode.CURRENT, [ORDERS]),
    "transformed": (definition(transform="SELECT *, qty * 2 AS twice FROM changes;"), Mode.CURRENT, [ORDERS]),
}


def emitted(name):
    chosen, mode, schemas = PROJECTS[name]
    return project(chosen, mode, schemas, storage="file:///project/storage", start="earliest")


@pytest.mark.parametrize("name", PROJECTS)
def test_projects_are_these(name):
    found = {str(path.relative_to(GOLDEN / name)): path.read_text() for path in (GOLDEN / name).rglob("*.*")}
    assert emitted(name) == found


@pytest.mark.parametrize("name", PROJECTS)
def test_what_is_emitted_is_python(name):
    for path, text in emitted(name).items():
        if path.endswith(".py"):
            ast.parse(text)


def test_texts_that_could_end_a_literal_do_not():
    nasty = 'SELECT """ || \'\\\' AS "x" FROM changes'
    files = project(definition(transform=nasty), Mode.CURRENT, [ORDERS], storage='a"b', start='2026"')
    program = ast.parse(files["transformations/orders.py"])
    assigned = [node for node in program.body if isinstance(node, ast.Assign)]
    assert nasty in ast.literal_eval(assigned[1].value)


def test_two_tables_of_one_name_are_refused():
    with pytest.raises(ConfigError, match=r"put \{table\} into the sink's URL"):
        project(definition(sink="catalog:lake.orders"), Mode.CURRENT, [ORDERS, NOTES], storage="s", start="earliest")


@pytest.mark.parametrize(("mode", "checked"), [(Mode.CURRENT, True), (Mode.HISTORY, True), (Mode.APPEND, False)])
def test_a_table_that_is_truncated_or_dropped_ends_with_an_error_there(mode, checked):
    program = project(definition(), mode, [ORDERS], storage="s", start="latest")["transformations/orders.py"]
    ast.parse(program)
    assert ("assert_true(_change_type NOT IN ('truncate', 'drop')" in program) is checked


@pytest.mark.parametrize("identity", [Identity.WHOLE_ROW, Identity.NONE])
def test_a_table_whose_rows_no_key_tells_apart_is_appended_only(identity):
    table = TableSchema(TableName("shop", "orders"), 1, (ID,), identity=identity)
    assert project(definition(), Mode.APPEND, [table], storage="s", start="latest")
    with pytest.raises(SinkRefusedError, match="needs a key that identifies rows"):
        project(definition(), Mode.CURRENT, [table], storage="s", start="latest")
