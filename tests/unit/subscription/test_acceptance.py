"""Facts about what a subscription may ask for."""

import pytest

from feeding import ROW_OPS, schema_of
from tailrace.model.errors import InvalidRequestError, UnknownTableError
from tailrace.model.subscription import FilterOptions, TableTarget
from tailrace.model.table import TableName
from tailrace.subscription.acceptance import accept_tables
from tailrace.testing.log import MemoryLog

USERS, ORDERS = TableName("app", "users"), TableName("app", "orders")


async def logs():
    log = MemoryLog()
    for name in ("users", "orders"):
        await log.put_schema(schema_of(name))
    return {"app": log}


async def test_a_filter_that_fits_each_table_is_accepted_for_their_source():
    options = FilterOptions(ROW_OPS, where="name = 'n'")
    assert accept_tables(TableTarget((USERS, ORDERS)), options, await logs(), "sqlite") == "app"


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
        accept_tables(TableTarget(tables), FilterOptions(ROW_OPS, where=where), await logs(), "sqlite")
