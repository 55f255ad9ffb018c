"""Facts about windows."""

import pytest

from feeding import chunk_of, draft_of, schema_of
from tailrace.model.op import Op
from tailrace.subscription.window import WIDE_CHANGES_MAX, WINDOW_CHANGES_MAX, window_of


@pytest.mark.parametrize(
    ("after", "first", "last"), [(10, 11, 2058), (2057, 11, 2058), (2058, 2059, 3010), (3009, 2059, 3010)]
)
def test_a_long_chunk_is_cut_at_the_same_places_for_everybody(after, first, last):
    chunk = chunk_of([schema_of("users")], draft_of([(Op.INSERT, 1)] * 3000), first=11)
    window = window_of(chunk, after)
    assert (window.first, window.last) == (first, last)


def test_a_short_chunk_is_its_own_window():
    chunk = chunk_of([schema_of("users")], draft_of([(Op.INSERT, 1)] * WINDOW_CHANGES_MAX))
    assert window_of(chunk, 7) is chunk


def test_everybody_gets_the_same_window_of_a_chunk():
    chunk = chunk_of([schema_of("users")], draft_of([(Op.INSERT, 1)] * 3000))
    assert window_of(chunk, 7) is window_of(chunk, 8)
    assert window_of(chunk, 7) is not window_of(chunk, 2999)


def test_those_who_take_more_at_once_cut_at_their_own_places():
    chunk = chunk_of([schema_of("users")], draft_of([(Op.INSERT, 1)] * 5000))
    wide = window_of(chunk, 4500, WIDE_CHANGES_MAX)
    assert (wide.first, wide.last) == (WIDE_CHANGES_MAX + 1, 5000)
    assert window_of(chunk, 0, WIDE_CHANGES_MAX).last == WIDE_CHANGES_MAX
    assert window_of(chunk, 0).last == WINDOW_CHANGES_MAX
