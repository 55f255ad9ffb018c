"""Facts about filters."""

from hypothesis import given
from hypothesis import strategies as st

from feeding import chunk_of, draft_of, schema_of
from tailrace.log.pick import Pick
from tailrace.log.statistics import Survey
from tailrace.model.image import NO_KEY
from tailrace.model.op import Op, wanted_ops
from tailrace.model.subscription import FilterOptions, TableTarget
from tailrace.model.table import TableName
from tailrace.model.wanted import AnyKey, KeyWithin, OneOfKeys, Wanted
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


def literal(number):
    return {"t": "i64", "v": number}


KEYS = (
    st.just({})
    | st.integers(0, 70).map(lambda number: {"key": (literal(number),)})
    | st.integers(0, 70).map(lambda number: {"bounds": {"lower_bound": literal(number)}})
    | st.integers(-5, 70).map(lambda number: {"bounds": {"upper_bound": literal(number)}})
    | st.just({"bounds": {"lower_bound": {"t": "str", "v": "a"}}})
    | st.just({"columns": ("name",)})
    | st.just({"where": "id > 3"})
)


@given(ROWS, st.lists(st.sampled_from(TABLES), min_size=1, unique=True), st.sets(st.sampled_from(list(Op))), KEYS)
def test_a_block_with_a_change_that_passes_is_never_passed_over(rows, tables, ops, conditions):
    chunk = chunk_of(SCHEMAS, draft_of(rows))
    chosen = Filter(TableTarget(tuple(tables)), FilterOptions(tuple(ops), **conditions))
    wanted = chosen.wanted(chunk.schemas)
    passing = list(chosen.select(chunk))
    assert wanted is None or Survey(7).add([chunk]).may_have(wanted) or not passing
    assert wanted is None or set(Pick(wanted).rows(chunk.batch).to_pylist()) >= set(passing)


def test_what_a_filter_wants_says_no_more_than_it_must():
    schemas = dict(enumerate(SCHEMAS, start=1))
    users = TableName("app", "users")
    everything = Filter(TableTarget(tuple(TABLES)), FilterOptions(tuple(Op)))
    assert everything.wanted(schemas) is None
    by_table = Filter(TableTarget((users,)), FilterOptions((Op.INSERT,))).wanted(schemas)
    assert by_table == Wanted({1: AnyKey(), 3: AnyKey()}, frozenset({1}), 4)
    by_key = Filter(TableTarget((users,)), FilterOptions((Op.INSERT,), key=(literal(7),))).wanted(schemas)
    assert by_key.schemas[1] == OneOfKeys(frozenset({b"[7]", NO_KEY}))
    bounds = {"lower_bound": literal(2), "upper_bound": literal(9)}
    by_bounds = Filter(TableTarget((users,)), FilterOptions((Op.INSERT,), bounds=bounds)).wanted(schemas)
    assert by_bounds.schemas[3] == KeyWithin(2, 9)
    unfit = Filter(TableTarget((users,)), FilterOptions((Op.INSERT,), key=(literal(7), literal(8)))).wanted(schemas)
    assert unfit.schemas[1] == AnyKey()
