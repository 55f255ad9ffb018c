"""Facts about hybrid timestamps."""

from hypothesis import given
from hypothesis import strategies as st

from tailrace.model.number import LOGICAL_BITS, hlc_at, hlc_time_us

MILLISECONDS_MAX = 2**46 - 1


@given(st.integers(0, MILLISECONDS_MAX))
def test_the_upper_46_bits_are_milliseconds(milliseconds):
    hlc = hlc_at(milliseconds * 1000 + 999)
    assert hlc >> LOGICAL_BITS == milliseconds
    assert hlc_time_us(hlc + 2**LOGICAL_BITS - 1) == milliseconds * 1000
    assert hlc < 2**64


def test_a_time_before_1970_counts_as_1970():
    assert hlc_at(-1) == 0
