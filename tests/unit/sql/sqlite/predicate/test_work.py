"""Facts about bounds of the work of SQL predicates."""

import contextlib
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.model.errors import InvalidPredicateError, PredicateError
from tailrace.model.op import Op
from tailrace.sql.sqlite.predicate import compile_where
from tailrace.sql.sqlite.predicate.check import check
from tailrace.sql.sqlite.predicate.sql import parse
from tailrace.sql.sqlite.predicate.work import WORK_BYTES_MAX, weigh
from unit.sql.sqlite.predicate.shop import ORDERS, image


def doubled(times):
    text = "status"
    for _ in range(times):
        text = f"({text} || {text})"
    return text


ATTACKS = {
    "a text that doubles": (f"length({doubled(11)}) > 1", 100_000),
    "a pattern compared at each place": (f"status LIKE '%{'_' * 30_000}b%'", 20_000),
    "sets compared at each place": (f"status GLOB '*{'[ab]' * 5_000}c*'", 20_000),
    "many comparisons": (" OR ".join(["status = 'x' || status"] * 1_500), 100_000),
    "options out of the row": (f"status IN ({', '.join(['status || extra'] * 1_500)})", 100_000),
    "folded again and again": (" OR ".join(["lower(status) = 'x'"] * 1_500), 100_000),
    "a case for each": (f"CASE {' '.join(['WHEN upper(status) = 0 || status THEN 1'] * 60)} END", 1_000_000),
    "characters to trim": ("trim(status, extra) = 'x'", 300_000),
    "a pattern out of the row": ("status LIKE extra", 100_000),
}


@pytest.mark.parametrize(("text", "size"), ATTACKS.values(), ids=ATTACKS)
def test_a_row_that_is_too_large_for_a_predicate_is_refused_and_small_ones_are_not(text, size):
    predicate = compile_where(text, ORDERS)
    different = "".join(chr(0x4E00 + number % 20_000) for number in range(size))
    with pytest.raises(PredicateError, match=r"too large|too long|longer than"):
        predicate.select([Op.INSERT], [None], [image(status="a" * size, extra=different)])
    assert predicate.select([Op.INSERT], [None], [image(status="ab", extra="b")]) in ([True], [False])


def test_numbers_weigh_nothing_but_text_in_their_columns_does():
    weights = weigh(check(parse("id = 5 AND quantity + 1 > id"), ORDERS, "id = 5 AND quantity + 1 > id"))
    assert (weights.typed, weights.typed_bytes_max) == (0, WORK_BYTES_MAX)
    assert weights.general > 0


def test_patterns_out_of_the_row_are_few():
    with pytest.raises(InvalidPredicateError, match="at most 8 patterns"):
        compile_where(" OR ".join(["status LIKE extra"] * 9), ORDERS)


PARTS = st.sampled_from(
    [
        "status = 'a'",
        "lower(status) = 'a'",
        "status LIKE '%a_b%'",
        "status || extra = 'x'",
        "trim(status) <> ''",
        "extra BETWEEN status AND upper(status)",
        "CASE status WHEN 'a' THEN 1 ELSE length(extra) END",
        "id IN (1, 2)",
    ]
)


@settings(max_examples=25, deadline=None)
@given(st.lists(PARTS, min_size=1, max_size=200), st.integers(0, 200_000), st.sampled_from(["a", "é"]))
def test_no_predicate_takes_long_on_any_row(parts, size, letter):
    predicate = compile_where(" OR ".join(parts), ORDERS)
    row = image(id=3, status=letter * size, extra=letter * size)
    begin_s = time.thread_time()
    with contextlib.suppress(PredicateError):
        predicate.select([Op.INSERT], [None], [row])
    assert time.thread_time() - begin_s < 5
