import pyarrow as pa
import pytest

from tailrace.model.chunk import ENVELOPE, Chunk
from tailrace.model.op import Op
from tailrace.model.table import Column, Kind, TableName, TableSchema
from tailrace.sql.sqlite.query import QueryJudge
from tailrace.subscription.query import begin, scan
from unit.sql.sqlite.query.sqlite_oracle import database, dependencies

USERS = TableSchema(TableName("app", "users"), 1, (Column("id", Kind.I64), Column("name", Kind.STR)), ("id",))
OTHER = TableSchema(TableName("app", "other"), 1, (Column("id", Kind.I64),), ("id",))
FOUND = dependencies(
    database("CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT)", "CREATE TABLE other (id INTEGER PRIMARY KEY)"),
    "SELECT name FROM users WHERE id < 10",
)


def chunk(first, *changes):
    columns = {name: [] for name in ENVELOPE.names}
    for offset, (op, schema, before, after) in enumerate(changes, first):
        values = (offset, 1, 0, 0, op, schema, b"[]", before, after, None, 1, False)
        for name, value in zip(ENVELOPE.names, values, strict=True):
            columns[name].append(value)
    return Chunk(pa.RecordBatch.from_pydict(columns, schema=ENVELOPE), {1: USERS, 2: OTHER})


CHUNK = chunk(
    11,
    (Op.INSERT, 1, None, b'{"id":1,"name":"a"}'),
    (Op.INSERT, 1, None, b'{"id":99,"name":"a"}'),
    (Op.INSERT, 2, None, b"not an image: never decoded"),
    (Op.UPDATE, 1, b'{"id":1,"name":"a"}', b'{"id":1,"name":"b"}'),
    (Op.UPDATE, 1, b'{"id":1,"name":"b"}', b'{"id":1,"name":"b"}'),
    (Op.DELETE, 1, b'{"id":99,"name":"a"}', None),
)


def test_the_relevant_changes_of_a_chunk_are_found_and_move_the_version():
    told = scan(begin(FOUND, "log", 10), QueryJudge(FOUND, ()), CHUNK)
    assert told.relevant == (11, 14)
    assert told.state.scanned == 16
    assert told.state.versions == {"users": 14}


@pytest.mark.parametrize(
    ("scanned", "relevant"), [(10, (11, 14)), (11, (14,)), (13, (14,)), (14, ()), (16, ()), (20, ())]
)
def test_what_was_scanned_before_is_not_judged_again(scanned, relevant):
    told = scan(begin(FOUND, "log", scanned), QueryJudge(FOUND, ()), CHUNK)
    assert told.relevant == relevant
    assert told.state.scanned == max(scanned, 16)


def test_a_schema_change_of_a_dependency_is_relevant():
    told = scan(begin(FOUND, "log", 0), QueryJudge(FOUND, ()), chunk(1, (Op.SCHEMA, 1, None, b'{"ddl":"x"}')))
    assert told.relevant == (1,)


@pytest.mark.parametrize(("table", "relevant"), [(1, (1,)), (2, ())])
def test_a_truncation_is_relevant_if_the_query_depends_on_the_table(table, relevant):
    told = scan(begin(FOUND, "log", 0), QueryJudge(FOUND, ()), chunk(1, (Op.TRUNCATE, table, None, None)))
    assert told.relevant == relevant


def test_a_chunk_without_the_query_s_tables_only_moves_scanned():
    told = scan(begin(FOUND, "log", 0), QueryJudge(FOUND, ()), chunk(1, (Op.SCHEMA, 2, None, b'{"ddl":"x"}')))
    assert told.relevant == ()
    assert told.state.scanned == 1
    assert told.state.versions == {"users": 0}
