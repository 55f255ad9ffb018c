"""Filters by key: exact keys and bounds, their answers and their refusals."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.model.errors import InvalidRequestError
from tailrace.model.image import encode_key
from tailrace.model.key import order_of
from tailrace.model.table import Column, Kind, TableName, TableSchema
from tailrace.model.value import to_literal
from tailrace.subscription.key_filter import ExactKey, KeyBounds


def table(*kinds: Kind) -> TableSchema:
    columns = tuple(Column(f"k{number}", kind) for number, kind in enumerate(kinds))
    return TableSchema(TableName("app", "t"), 1, columns, tuple(column.name for column in columns))


ONE, TWO, NONE = table(Kind.I64), table(Kind.I64, Kind.STR), TableSchema(TableName("app", "t"), 1, (Column("a"),))
FIVE, NINE = {"t": "i64", "v": 5}, {"t": "i64", "v": 9}

KEY_REFUSALS = [
    (NONE, [FIVE], "no primary key"),
    (ONE, [FIVE, FIVE], "has 2 values"),
    (TWO, [FIVE], "has 1 values"),
    (ONE, [5], "typed literal"),
    (ONE, [{"t": "i64", "v": "5"}], "ill-typed"),
    (ONE, [{"t": "huge"}], "unknown literal type"),
    (ONE, {"t": "i64", "v": 5}, "list of typed literals"),
    (ONE, [], "list of typed literals"),
    (ONE, None, "list of typed literals"),
]


@pytest.mark.parametrize(("schema", "literals", "reason"), KEY_REFUSALS)
def test_a_pk_that_no_key_can_have_is_refused(schema, literals, reason):
    with pytest.raises(InvalidRequestError, match=reason):
        ExactKey(literals, schema)


BOUND_REFUSALS = [
    (ONE, {}, "needs lower_bound or upper_bound"),
    (ONE, {"lower_bound": None}, "needs lower_bound or upper_bound"),
    (NONE, {"lower_bound": FIVE}, "no primary key"),
    (ONE, {"lower_bound": [FIVE, FIVE]}, "has 2 values"),
    (TWO, {"lower_bound": []}, "has 0 values"),
    (ONE, {"lower_bound": NINE, "upper_bound": FIVE}, "above upper_bound"),
    (TWO, {"lower_bound": [FIVE, {"t": "str", "v": "b"}], "upper_bound": [FIVE, {"t": "str", "v": "a"}]}, "above"),
    (TWO, {"lower_bound": [NINE], "upper_bound": [FIVE, {"t": "str", "v": "a"}]}, "above"),
    (ONE, {"lower_bound": FIVE, "upper_bound": {"t": "str", "v": "z"}}, "different types"),
    (ONE, {"lower_bound": 5}, "typed literal"),
    (ONE, {"lower": FIVE}, "an object with"),
    (ONE, [FIVE], "an object with"),
]


@pytest.mark.parametrize(("schema", "bounds", "reason"), BOUND_REFUSALS)
def test_bounds_between_which_nothing_can_lie_are_refused(schema, bounds, reason):
    with pytest.raises(InvalidRequestError, match=reason):
        KeyBounds(bounds, schema)


def arrow(keys: list[bytes]) -> pa.Array:
    return pa.array(keys, pa.binary())


def test_an_exact_key_passes_that_key_and_schema_changes():
    keys = [b"[5]", b"[50]", b"[5.0]", b'["5"]', b"[]"]
    exact = ExactKey([FIVE], ONE)
    assert exact.select(keys) == [True, False, False, False, True]
    assert exact.mask(arrow(keys)).to_pylist() == exact.select(keys)


def test_an_exact_key_of_a_type_that_the_column_never_has_passes_nothing():
    exact = ExactKey([{"t": "u64", "v": 5}], table(Kind.ANY))
    assert exact.key is None
    assert exact.select([b"[5]", b"[null]", b"[]"]) == [False, False, True]
    assert exact.mask(arrow([b"[5]", b"[]"])).to_pylist() == [False, True]


BOUNDED = [
    (ONE, FIVE, NINE, [b"[4]", b"[5]", b"[9]", b"[10]"], [False, True, True, False]),
    (ONE, FIVE, None, [b"[4]", b"[5]", b"[9223372036854775807]"], [False, True, True]),
    (ONE, None, FIVE, [b"[-9223372036854775808]", b"[5]", b"[6]"], [True, True, False]),
    (ONE, FIVE, NINE, [b"[5.5]", b'["7"]', b"[null]", b"[true]", b"[]"], [True, False, False, False, True]),
    (ONE, {"t": "f64", "v": 4.5}, None, [b"[4]", b"[5]"], [False, True]),
    (
        table(Kind.STR),
        {"t": "str", "v": "b"},
        {"t": "str", "v": "d"},
        [b'["a"]', b'["b"]', b'["d"]', b'["da"]'],
        [False, True, True, False],
    ),
    (TWO, [FIVE], [NINE], [b'[4,"z"]', b'[5,""]', b'[9,"z"]', b'[10,""]'], [False, True, True, False]),
    (
        TWO,
        [FIVE, {"t": "str", "v": "m"}],
        None,
        [b'[5,"a"]', b'[5,"m"]', b'[6,"a"]', b"[6,null]"],
        [False, True, True, True],
    ),
    (TWO, [FIVE, {"t": "str", "v": "m"}], None, [b"[5,null]", b"[5,7]"], [False, False]),
    (TWO, FIVE, FIVE, [b'[5,"x"]', b'[6,"x"]'], [True, False]),
    (table(Kind.U64), {"t": "u64", "v": 2**63}, None, [b"[1]", b"[18446744073709551615]"], [False, True]),
    (table(Kind.DATE), {"t": "date", "iso": "2000-01-01"}, None, [b'["1999-12-31"]', b'["2000-01-02"]'], [False, True]),
]


@pytest.mark.parametrize(("schema", "lower", "upper", "keys", "expected"), BOUNDED)
def test_keys_within_the_bounds_pass(schema, lower, upper, keys, expected):
    given_bounds = {"lower_bound": lower, "upper_bound": upper}
    bounds = KeyBounds({name: bound for name, bound in given_bounds.items() if bound is not None}, schema)
    assert bounds.select(keys) == expected
    assert bounds.mask(arrow(keys)).to_pylist() == expected


def test_bounds_over_integers_are_vectorised():
    bounds = KeyBounds({"lower_bound": FIVE, "upper_bound": NINE}, ONE)
    keys = [b"[%d]" % number for number in range(-20, 20)]
    assert bounds.mask(arrow(keys)).to_pylist() == [5 <= number <= 9 for number in range(-20, 20)]


KEYS = st.one_of(
    st.integers(-9, 9), st.floats(-9, 9, allow_nan=False), st.text("ab", max_size=2), st.binary(max_size=2), st.none()
)


@settings(deadline=None)
@given(KEYS, KEYS, st.lists(KEYS, max_size=8))
def test_a_key_passes_exactly_if_it_is_comparable_and_in_order(low, high, values):
    schema = table(Kind.ANY)
    literals = {"lower_bound": to_literal(low), "upper_bound": to_literal(high)}
    try:
        bounds = KeyBounds(literals, schema)
    except InvalidRequestError:
        assert order_of(low)[0] != order_of(high)[0] or order_of(low) > order_of(high)
        return
    expected = [
        order_of(value)[0] == order_of(low)[0] and order_of(low) <= order_of(value) <= order_of(high)
        for value in values
    ]
    assert bounds.select([encode_key((value,), schema) for value in values]) == expected


def test_equal_filters_have_equal_names():
    assert ExactKey([FIVE], ONE).canonical == ExactKey([{"t": "u64", "v": 5}], ONE).canonical
    assert ExactKey([FIVE], ONE).canonical != ExactKey([NINE], ONE).canonical
    bounds = [{"lower_bound": FIVE}, {"upper_bound": FIVE}, {"lower_bound": FIVE, "upper_bound": FIVE}]
    assert len({KeyBounds(each, ONE).canonical for each in bounds}) == 3
    assert KeyBounds({"lower_bound": FIVE}, ONE).canonical == KeyBounds({"lower_bound": [FIVE]}, ONE).canonical
