"""Which table a name on the wires means, with and without a schema."""

import pytest

from tailrace.model.errors import UnknownSourceError, UnknownTableError
from tailrace.model.op import ROW_OPS
from tailrace.model.subscription import FilterOptions
from tailrace.model.table import Column, TableName, TableSchema
from tailrace.subscription.query.etag import begin
from tailrace.subscription.query.query_filter import InvalidationMark, QueryFilter
from tailrace.subscription.query.tracker import QueryStanding
from tailrace.subscription.table import find_table, known_table, readings
from tailrace.testing.database import ScriptedDatabase
from tailrace.testing.log import MemoryLog
from tailrace.testing.table_queries import TableDialect, TableQueries

ITEM, ELSEWHERE = TableName("app", "item"), TableName("app", "item", "other")
DOTTED = TableName("app", "b.c", "a")


@pytest.fixture
async def log():
    made = MemoryLog()
    for table in (ITEM, ELSEWHERE, DOTTED):
        await made.put_schema(TableSchema(table, 1, (Column("id"),), ("id",)))
    return made


@pytest.mark.parametrize("table", [ITEM, ELSEWHERE, DOTTED])
async def test_a_name_means_the_table_that_the_log_knows(log, table):
    assert table in list(readings("app", table.wire))
    assert known_table(log, "app", table.wire) == table
    assert find_table({"app": log}, "app", table.wire).table == table


async def test_a_name_of_no_table_is_a_bare_one_and_is_not_found(log):
    assert known_table(log, "app", "x.y") == TableName("app", "x.y")
    with pytest.raises(UnknownTableError):
        find_table({"app": log}, "app", "x.y")
    with pytest.raises(UnknownSourceError):
        find_table({"app": log}, "elsewhere", "item")


@pytest.mark.parametrize("table", [ITEM, ELSEWHERE, DOTTED])
async def test_the_filter_of_a_query_wants_the_table_that_it_depends_on(table):
    dialect = TableDialect("scripted")
    statement = dialect.parse_query(f"TABLE {table.wire}")
    found, catalog = await TableQueries("app", ScriptedDatabase()).consult(lambda c: dialect.analyse(statement, c))
    standing = QueryStanding("q", (), begin(found, "log", 0), found, dialect.judge(found, ()), catalog)
    chosen = QueryFilter(FilterOptions(ROW_OPS), standing, InvalidationMark("q", "tag"), "app")
    assert [one for one in (ITEM, ELSEWHERE, DOTTED) if chosen.wants(one)] == [table]
