"""Our comparisons against SQLite's own."""

import math
from decimal import Decimal

import apsw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.model.table import Kind
from tailrace.model.value import Text
from tailrace.sql.sqlite.affinity import Affinity
from tailrace.sql.sqlite.query.comparison import UNKNOWN, coerce, order, same, storage

CONNECTION = apsw.Connection(":memory:")
DECLARED = {
    Affinity.NUMERIC: "NUMERIC",
    Affinity.INTEGER: "INTEGER",
    Affinity.REAL: "REAL",
    Affinity.TEXT: "TEXT",
    Affinity.BLOB: "BLOB",
}
for _affinity, _declared in DECLARED.items():
    CONNECTION.execute(f"CREATE TABLE t_{_affinity.name} (v {_declared})")

SHORT = st.text(st.sampled_from("0123456789 .-+eEaxé\t"), max_size=6)
STORED = st.one_of(
    st.none(),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-3, 3),
    st.floats(allow_nan=False),
    st.sampled_from([0.0, -0.0, 1.0, 2.0**53, 1e300, math.inf]),
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=4),
    SHORT,
    st.binary(max_size=3),
)


@settings(max_examples=400, deadline=None)
@given(STORED, STORED, st.sampled_from(list(DECLARED)))
def test_a_column_and_a_constant_compare_as_in_sqlite_or_not_at_all(value, constant, affinity):
    with CONNECTION:
        CONNECTION.execute(f"DELETE FROM t_{affinity.name}")
        CONNECTION.execute(f"INSERT INTO t_{affinity.name} VALUES (?)", (value,))
        kept, less, equal, greater = CONNECTION.execute(
            f"SELECT v, v < ?1, v = ?1, v > ?1 FROM t_{affinity.name}", (constant,)
        ).fetchone()
    stored, coerced = storage(kept, affinity), coerce(constant, affinity)
    if stored is UNKNOWN or coerced is UNKNOWN:
        return
    if stored is None or coerced is None:
        assert (less, equal, greater) == (None, None, None)
    else:
        ordered = order(stored, coerced)
        assert (less, equal, greater) == (int(ordered < 0), int(ordered == 0), int(ordered > 0))


@pytest.mark.parametrize(
    ("value", "affinity", "stored"),
    [
        (True, Affinity.NUMERIC, 1),
        (math.nan, Affinity.NONE, None),
        (Text(Kind.DATE, "2024-01-01"), Affinity.NUMERIC, "2024-01-01"),
        (Decimal("1.5"), Affinity.NUMERIC, UNKNOWN),
        (2**63, Affinity.NUMERIC, UNKNOWN),
        ("12", Affinity.NUMERIC, UNKNOWN),
        ("12", Affinity.NONE, "12"),
        (12, Affinity.TEXT, UNKNOWN),
    ],
)
def test_an_image_that_the_database_would_not_hold_is_unknown(value, affinity, stored):
    assert storage(value, affinity) is stored or storage(value, affinity) == stored


@pytest.mark.parametrize(
    ("constant", "affinity", "coerced"),
    [
        ("12", Affinity.NUMERIC, 12),
        ("-012", Affinity.NUMERIC, -12),
        ("1.5", Affinity.NUMERIC, UNKNOWN),
        (" 1", Affinity.NUMERIC, UNKNOWN),
        ("1x", Affinity.NUMERIC, "1x"),
        ("0x1", Affinity.NUMERIC, "0x1"),
        (12, Affinity.TEXT, "12"),
        (1.5, Affinity.TEXT, UNKNOWN),
        (b"a", Affinity.TEXT, b"a"),
        (12, Affinity.NONE, 12),
        (None, Affinity.TEXT, None),
    ],
)
def test_a_constant_takes_the_affinity_of_its_column(constant, affinity, coerced):
    assert coerce(constant, affinity) == coerced


@pytest.mark.parametrize(("left", "right"), [(1, 1.0), (1, True), (0.0, -0.0), ("1", 1), (b"a", "a"), (None, 0)])
def test_values_that_look_alike_are_not_the_same(left, right):
    assert not same(left, right)
    assert same(left, left)


def test_not_a_number_is_the_same_as_itself():
    assert same(math.nan, math.nan)
    assert not same(Decimal("1.0"), Decimal("1.00"))
