"""Facts about finding the place where a subscriber begins."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feeding import draft_of, schema_of
from tailrace.model.errors import BeyondHeadError
from tailrace.model.op import Op
from tailrace.model.start import After, AtTime, Earliest, Latest
from tailrace.subscription.place import find_place, place_of
from tailrace.testing.log import MemoryLog


async def log_of(*commits):
    """Return a log of commits given as time and number of changes."""
    log = MemoryLog()
    schema_id = await log.put_schema(schema_of("users"))
    for time_us, count in commits:
        draft = draft_of([(Op.INSERT, schema_id)] * count)
        draft.commit_time_us = time_us
        await log.append([draft])
    return log


@pytest.mark.parametrize(
    ("start", "place"),
    [(Earliest(), 2), (Latest(), 6), (After(0), 0), (After(6), 6), (AtTime(0), 2), (AtTime(30), 4), (AtTime(99), 6)],
)
async def test_each_start_has_its_place(start, place):
    log = await log_of((10, 3), (20, 1), (30, 2))
    log.forget_before(3)
    assert await find_place(start, log) == place
    if not isinstance(start, AtTime):
        assert place_of(start, log) == place


async def test_a_place_beyond_the_head_is_refused():
    log = await log_of((10, 3))
    with pytest.raises(BeyondHeadError):
        await find_place(After(4), log)


async def test_an_empty_log_has_one_place():
    log = await log_of()
    for start in (Earliest(), Latest(), AtTime(5)):
        assert await find_place(start, log) == 0


@settings(deadline=None, max_examples=200)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 5)), max_size=12), st.integers(-1, 10), st.data())
async def test_a_time_is_found_before_the_first_change_at_or_after_it(commits, time_us, data):
    log = await log_of(*sorted(commits, key=lambda commit: commit[0]))
    log.forget_before(data.draw(st.integers(1, log.head + 1)))
    times = [time for time, count in sorted(commits, key=lambda commit: commit[0]) for _ in range(count)]
    late = [offset for offset, time in enumerate(times, start=1) if time >= time_us and offset >= log.horizon]
    assert await find_place(AtTime(time_us), log) == (late[0] - 1 if late else max(log.head, log.horizon - 1))
