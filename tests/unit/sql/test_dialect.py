"""Dialects by their names, and sources without one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.model.errors import InvalidPredicateError, InvalidRequestError
from tailrace.model.table import Column, TableName, TableSchema
from tailrace.sql.dialect import DIALECTS, WithoutSql, dialect_of

SCHEMA = TableSchema(TableName("s", "t"), 1, (Column("a"),), ("a",))
NONE = dialect_of("none")


@pytest.mark.parametrize("name", [*DIALECTS, "none"])
def test_a_dialect_is_the_same_each_time_and_has_its_name(name):
    assert dialect_of(name) is dialect_of(name)
    assert dialect_of(name).name == name


@pytest.mark.parametrize("name", [*DIALECTS, "none"])
@given(st.text(max_size=12))
def test_folding_a_name_again_changes_nothing(name, table):
    dialect = dialect_of(name)
    folded = dialect.fold(table)
    assert dialect.fold(folded) == folded


@pytest.mark.parametrize("name", [name for name in DIALECTS if not isinstance(dialect_of(name), WithoutSql)])
def test_a_dialect_reads_compiles_and_analyses(name):
    dialect = dialect_of(name)
    dialect.check_where("a = 1")
    with pytest.raises(InvalidPredicateError):
        dialect.check_where("a = ")
    assert dialect.compile_where("a = 1", SCHEMA).select([1], [None], [b'{"a":1}']) == [True]
    assert dialect.cell_reader(["a"], SCHEMA)(b'{"a":1}') == {"a": 1}
    assert dialect.parse_query("SELECT a FROM t WHERE a = ?").arguments == 1
    assert dialect.bind([True], 1) == (1,)
    with pytest.raises(InvalidRequestError):
        dialect.bind([1, 2], 1)


@pytest.mark.parametrize(
    "ask",
    [
        lambda: NONE.check_where("a = 1"),
        lambda: NONE.compile_where("a = 1", SCHEMA),
        lambda: NONE.parse_query("SELECT 1"),
        lambda: NONE.query_of_tree({}, "s"),
        lambda: NONE.bind([], 0),
    ],
)
def test_a_source_without_sql_refuses_it_and_says_so(ask):
    with pytest.raises(InvalidRequestError, match="for none sources"):
        ask()


def test_a_source_without_sql_promises_nothing_of_its_keys():
    assert isinstance(NONE, WithoutSql)
    assert not NONE.orders_as_bytes(SCHEMA, None)
    assert not NONE.keeps([1], SCHEMA, None)
