"""Retention by bytes and age against a plain list of frames."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from log_samples import SMALL, PlainLog, draft
from tailrace.log.recover import examine
from tailrace.log.retain import age_horizon, byte_horizon
from tailrace.log.segments import Segments
from tailrace.testing.clock import FakeClock
from tailrace.testing.files import MemoryFiles

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
