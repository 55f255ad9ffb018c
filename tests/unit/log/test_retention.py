import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.log.retention import byte_cut, horizon_by_changes, removable
from tailrace.model.number import Offset


@pytest.mark.parametrize(
    ("head", "changes_max", "horizon"),
    [(0, None, 1), (10, None, 1), (0, 3, 1), (2, 3, 1), (3, 3, 1), (4, 3, 2), (10, 3, 8), (10, 1, 10)],
)
def test_the_newest_changes_stay_exactly(head, changes_max, horizon):
    assert horizon_by_changes(Offset(head), changes_max) == horizon


@given(st.lists(st.integers(1, 50), max_size=12), st.integers(0, 400))
def test_what_is_behind_the_cut_fits_and_one_byte_more_would_not(sizes, bytes_max):
    cut = byte_cut(sizes, bytes_max)
    if cut is None:
        assert sum(sizes) <= bytes_max
        return
    number, place = cut
    rest = sum(sizes[number:]) - place
    assert rest == bytes_max
    assert place < (sizes[number] if number < len(sizes) else 1)


@pytest.mark.parametrize(
    ("horizon", "head", "count"),
    [(1, 30, 0), (10, 30, 0), (11, 30, 1), (20, 30, 1), (21, 30, 2), (31, 30, 2), (31, 20, 1), (1, 0, 0)],
    ids=[
        "nothing below",
        "one change left in the first",
        "the first wholly below",
        "one change left in the second",
        "two wholly below",
        "all below: the one with the last commit stays",
        "the newest has no frames: the one with the last commit stays",
        "an empty log",
    ],
)
def test_only_segments_wholly_below_the_horizon_go(horizon, head, count):
    assert removable([Offset(1), Offset(11), Offset(21)], Offset(horizon), Offset(head)) == count
