"""Facts about what patterns cost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.subscription.cel.pattern import pattern_cost

GROWING = [
    ("a", "a{100}"),
    ("a{100}", "(a{100}){100}"),
    ("a{0,3}", "a{0,300}"),
    ("a{3}", "a{3}{30}"),
    ("a{3}", "a{3,}"),
    ("[a-z]", r"[\w]"),
    ("a", "(?i)a"),
    ("a", r"\pL"),
    ("[a]", "[^a]"),
    ("ab", "a|b|ccc"),
]


@pytest.mark.parametrize(("small", "large"), GROWING)
def test_a_pattern_that_says_more_costs_more(small, large):
    assert pattern_cost(small).compile_ns < pattern_cost(large).compile_ns


def test_counts_multiply_however_large_they_are():
    assert pattern_cost("(a{1000}){1000}").positions > 1_000_000
    assert pattern_cost("a{99999999999999}").positions > 1_000_000
    assert pattern_cost("(" * 100 + "a" + ")" * 100).compile_ns > 10**15
    assert pattern_cost("(?x)a # [").compile_ns > 10**15


@given(st.text(alphabet="ab(){}[]\\*+?|^.,0139-wdpx:", max_size=40))
def test_any_text_has_a_cost(pattern):
    assert pattern_cost(pattern).compile_ns > 0
