"""Hypothesis strategies for the nouns of the model, shared by all tests."""

import math
import string
from decimal import Decimal

from hypothesis import strategies as st

from tailrace.model.key import TEXT_KINDS
from tailrace.model.table import Column, Kind, TableName, TableSchema
from tailrace.model.value import Array, Text

TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=12)
INTEGERS = st.integers(-(2**63), 2**64 - 1)
DECIMALS = st.decimals(allow_nan=False, allow_infinity=False) | st.sampled_from([Decimal("NaN"), Decimal("Infinity")])
TYPE_NAMES = st.sampled_from(["", "ltree", "money"])
TEXT_VALUES = st.one_of(
    st.builds(Text, st.sampled_from([kind for kind in TEXT_KINDS if kind not in {Kind.JSON, Kind.FOREIGN}]), TEXTS),
    st.builds(Text, st.just(Kind.FOREIGN), TEXTS, TYPE_NAMES),
    st.builds(
        Text,
        st.just(Kind.JSON),
        st.sampled_from(["{}", '{"t":"i64","v":1}', '{"a": 1, "a":2}', "1e400", "[1,2]", "null"]),
    ),
)

SCALARS = st.one_of(
    st.none(), st.booleans(), INTEGERS, st.floats(), TEXTS, st.binary(max_size=12), DECIMALS, TEXT_VALUES
)


def arrays(items):
    """Return a strategy for arrays of these values: of some dimensions, with lower bounds or without."""
    dimensions = st.recursive(
        st.lists(items, max_size=3).map(tuple), lambda inner: st.lists(inner, max_size=2).map(tuple), max_leaves=4
    )
    return st.builds(Array, dimensions, st.lists(st.integers(-3, 3), max_size=2).map(tuple))


VALUES = SCALARS | arrays(SCALARS) | arrays(SCALARS | arrays(SCALARS))
KINDS = st.sampled_from(list(Kind))
ELEMENTS = st.none() | st.builds(Column, st.just(""), KINDS, TYPE_NAMES)
NAMES = st.text(string.ascii_letters + 'ü "\\', min_size=1, max_size=8)


COLUMNS = st.builds(Column, st.just("c"), KINDS, TYPE_NAMES, element=ELEMENTS)


@st.composite
def table_schemas(draw: st.DrawFn) -> TableSchema:
    """Draw a table schema with one to five columns and a key of some of them, or none."""
    names = draw(st.lists(NAMES, min_size=1, max_size=5, unique=True))
    columns = tuple(Column(name, draw(KINDS), draw(TYPE_NAMES), element=draw(ELEMENTS)) for name in names)
    key = tuple(draw(st.lists(st.sampled_from(names), unique=True, max_size=3)))
    return TableSchema(TableName("app", draw(NAMES)), 1, columns, key)


def same(one: object, other: object) -> bool:
    """Tell whether two values are the same to the last bit: type, sign of zero, not-a-number equal to itself."""
    if type(one) is not type(other):
        return False
    if isinstance(one, float) and isinstance(other, float):
        return (math.isnan(one) and math.isnan(other)) or (
            one == other and math.copysign(1, one) == math.copysign(1, other)
        )
    if isinstance(one, Decimal) and isinstance(other, Decimal):
        return str(one) == str(other)
    if isinstance(one, Array) and isinstance(other, Array):
        return one.lower == other.lower and same(one.items, other.items)
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other
