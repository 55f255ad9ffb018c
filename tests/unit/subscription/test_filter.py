"""Facts about filters."""

from hypothesis import given
from hypothesis import strategies as st

from feeding import chunk_of, draft_of, schema_of
from tailrace.model.op import Op, wanted_ops
from tailrace.model.subscription import FilterOptions, TableTarget
from tailrace.model.table import TableName
from tailrace.subscription.filter import Filter

SCHEMAS = [schema_of("users"), schema_of("orders"), schema_of("users", version=2), schema_of("users", space="other")]
TABLES = sorted({schema.table for schema in SCHEMAS} | {TableName("app", "absent")})
ROWS = st.lists(st.tuples(st.sampled_from(list(Op)), st.integers(1, len(SCHEMAS))), min_size=1, max_size=60)


@given(ROWS, st.lists(st.sampled_from(TABLES), min_size=1, unique=True), st.sets(st.sampled_from(list(Op))))
def test_a_filter_chooses_what_going_through_the_rows_chooses(rows, tables, ops):
    chunk = chunk_of(SCHEMAS, draft_of(rows))
    found = Filter(TableTarget(tuple(tables)), FilterOptions(tuple(ops))).select(chunk)
    wanted = [
        row for row, (op, schema) in enumerate(rows) if op in wanted_ops(ops) and SCHEMAS[schema - 1].table in tables
    ]
    assert list(found) == wanted


@given(ROWS)
def test_a_filter_that_lets_all_pass_gives_one_range(rows):
    chunk = chunk_of(SCHEMAS, draft_of(rows))
    found = Filter(TableTarget(tuple(TABLES)), FilterOptions(tuple(Op))).select(chunk)
    assert found == range(len(rows))


def test_filters_that_choose_the_same_are_equal_whatever_the_order():
    users, orders = TableName("app", "users"), TableName("app", "orders")
    one = Filter(TableTarget((users, orders)), FilterOptions((Op.INSERT, Op.DELETE)))
    other = Filter(TableTarget((orders, users)), FilterOptions((Op.DELETE, Op.INSERT)))
    narrower = Filter(TableTarget((orders, users)), FilterOptions((Op.DELETE,)))
    assert one == other
    assert hash(one) == hash(other)
    assert one != narrower
    assert one != object()
