"""Facts about what a subscription may ask for."""

import pytest
from msgspec import structs

from feeding import ROW_OPS, schema_of
from tailrace.model.errors import InvalidPredicateError, InvalidRequestError, UnknownSourceError, UnknownTableError
from tailrace.model.subscription import FilterOptions, SourceTarget, TableTarget
from tailrace.model.table import Column, Kind, TableName
from tailrace.sql.dialect import dialect_of
from tailrace.subscription.acceptance import accept_source, accept_tables
from tailrace.testing.log import MemoryLog

DIALECTS = {"app": dialect_of("sqlite")}
USERS, ORDERS = TableName("app", "users"), TableName("app", "orders")


async def logs():
    log = MemoryLog()
    for name in ("users", "orders"):
        await log.put_schema(schema_of(name))
    return {"app": log}


async def test_a_filter_that_fits_each_table_is_accepted_for_their_source():
    options = FilterOptions(ROW_OPS, where="name = 'n'")
    assert accept_tables(TableTarget((USERS, ORDERS)), options, await logs()) == "app"


@pytest.mark.parametrize(
    ("tables", "where", "error"),
    [
        pytest.param((), None, InvalidRequestError, id="no table"),
        pytest.param((USERS, TableName("other", "users")), None, InvalidRequestError, id="two sources"),
        pytest.param((TableName("other", "users"),), None, UnknownTableError, id="an unknown source"),
        pytest.param((USERS, TableName("app", "none")), None, UnknownTableError, id="an unknown table"),
        pytest.param((USERS,), "none = 1", InvalidRequestError, id="a column that is not there"),
    ],
)
async def test_what_cannot_be_served_is_refused(tables, where, error):
    with pytest.raises(error):
        accept_tables(TableTarget(tables), FilterOptions(ROW_OPS, where=where), await logs())


@pytest.mark.parametrize(
    ("names", "where"),
    [
        pytest.param((), None, id="all tables"),
        pytest.param(("unknown",), None, id="a table that is not there yet"),
        pytest.param((), "price > 1", id="all tables, of which one fits"),
        pytest.param(("priced",), "price > 1", id="a table that fits"),
        pytest.param(("priced", "unknown"), "price > 1", id="a table that fits and one that is not there yet"),
        pytest.param(("unknown",), "whatever > 1", id="a table of which nobody knows the columns"),
    ],
)
async def test_a_filter_that_fits_what_is_known_of_a_source_is_accepted(names, where):
    made = await logs()
    columns = (Column("id", Kind.I64), Column("price", Kind.I64))
    await made["app"].put_schema(schema_of("priced"))
    await made["app"].put_schema(schema_of("priced", version=2, columns=columns))
    accept_source(SourceTarget("app", names), FilterOptions(ROW_OPS, where=where), made, DIALECTS)


@pytest.mark.parametrize(
    ("source", "names", "where", "error"),
    [
        pytest.param("other", (), None, UnknownSourceError, id="an unknown source"),
        pytest.param("app", (), "none = 1", InvalidPredicateError, id="a column that no table has"),
        pytest.param("app", ("users",), "none = 1", InvalidPredicateError, id="a column that the table lacks"),
        pytest.param("app", ("unknown",), "id = ", InvalidPredicateError, id="half a predicate"),
        pytest.param("app", (), " " * (1 << 20) + "1", InvalidPredicateError, id="a predicate too long"),
    ],
)
async def test_what_no_table_of_a_source_can_serve_is_refused(source, names, where, error):
    with pytest.raises(error):
        accept_source(SourceTarget(source, names), FilterOptions(ROW_OPS, where=where), await logs(), DIALECTS)


async def test_a_predicate_that_the_dialect_of_a_source_cannot_promise_is_refused_when_it_is_asked_for():
    foreign = structs.replace(schema_of("users"), dialect="none")
    log = MemoryLog()
    await log.put_schema(foreign)
    options = FilterOptions(ROW_OPS, where="id = 1")
    with pytest.raises(InvalidPredicateError, match="no SQL predicates for none sources"):
        accept_tables(TableTarget((USERS,)), options, {"app": log})
    with pytest.raises(InvalidPredicateError, match="no SQL predicates for none sources"):
        accept_source(SourceTarget("app", ("later",)), options, {"app": log}, {"app": dialect_of("none")})
    accept_tables(TableTarget((USERS,)), FilterOptions(ROW_OPS, cel="row.id == 1"), {"app": log})


async def test_nothing_speaks_against_a_predicate_where_no_table_is_known():
    accept_source(SourceTarget("app"), FilterOptions(ROW_OPS, where="id = 1"), {"app": MemoryLog()}, DIALECTS)
