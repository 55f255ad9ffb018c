import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from log_samples import SMALL, PlainLog, draft
from tailrace.log.recover import examine
from tailrace.log.retention import age_horizon, byte_cut, byte_horizon, horizon_by_changes, removable
from tailrace.log.segments import Segments
from tailrace.model.number import Offset
from tailrace.testing.clock import FakeClock
from tailrace.testing.files import MemoryFiles


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


SECOND_US = 1_000_000


def made(changes: list[int]) -> tuple[MemoryFiles, Segments, list[tuple[int, int, int]]]:
    """Return a log of frames ten seconds apart, in small segments, and (first offset, place, time) of each frame.

    Places are counted through all segments, as bytes that retention counts.
    """
    files, clock = MemoryFiles(), FakeClock()
    log = PlainLog(files, replace(SMALL, segment_bytes_max=6000), clock)
    frames, sealed, segment, last_end = [], 0, None, 0
    for number, count in enumerate(changes, 1):
        stored = log.append(draft(number, count, "n" * 200))
        if segment is not None and stored.segment is not segment:
            sealed += last_end
        segment, last_end = stored.segment, stored.end
        header = stored.frame.header
        frames.append((header.first_offset, sealed + stored.end - header.frame_bytes, header.append_time_us))
        clock.advance(10)
    found = examine(files)
    segments = Segments(files, {})
    segments.replace(found.segments, found.sparse, found.end)
    return files, segments, [*frames, (found.head + 1, sealed + last_end, clock.now_us())]


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(1, 12), min_size=1, max_size=25), st.data())
def test_the_oldest_frame_that_fits_is_the_horizon(changes, data):
    _, segments, frames = made(changes)
    total = frames[-1][1]
    for bytes_max in (0, total - 1, total, data.draw(st.integers(0, total + 100)), data.draw(st.integers(0, total))):
        horizon = byte_horizon(segments, bytes_max, frames[-1][0] - 1)
        if total <= bytes_max:
            assert horizon == 0
        else:
            assert horizon == next(first for first, place, _ in frames if total - place <= bytes_max)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(1, 12), min_size=1, max_size=25), st.data())
def test_the_oldest_frame_that_is_young_enough_is_the_horizon(changes, data):
    _, segments, frames = made(changes)
    begin_us = frames[0][2]
    for _ in range(4):
        oldest_us = begin_us + data.draw(st.integers(-20, 10 * len(changes) + 20)) * SECOND_US
        horizon = age_horizon(segments, oldest_us, frames[-1][0] - 1)
        expected = next((first for first, _, time_us in frames[:-1] if time_us >= oldest_us), frames[-1][0])
        assert max(horizon, 1) == expected


@pytest.mark.parametrize("rule", [byte_horizon, age_horizon])
def test_an_empty_log_has_nothing_to_forget(rule):
    assert rule(Segments(MemoryFiles(), {}), 0, 0) == 0
