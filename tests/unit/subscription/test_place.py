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
@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(1, 5)), max_size=12),
    st.integers(-1, 10),
    st.sampled_from([1, 1000, 30_000_000]),
    st.booleans(),
    st.data(),
)
async def test_a_time_is_found_before_the_first_change_at_or_after_it(commits, time, unit_us, in_order, data):
    """Also where the clock was set back, once or more often."""
    if in_order:
        commits.sort(key=lambda commit: commit[0])
    log = await log_of(*((one * unit_us, count) for one, count in commits))
    log.forget_before(data.draw(st.integers(1, log.head + 1)))
    times = [one for one, count in commits for _ in range(count)]
    late = [offset for offset, one in enumerate(times, start=1) if one >= time and offset >= log.horizon]
    assert await find_place(AtTime(time * unit_us), log) == (late[0] - 1 if late else max(log.head, log.horizon - 1))


async def test_a_time_after_the_clock_was_set_back_is_found_where_it_came_first():
    hour_us = 3_600_000_000
    log = await log_of(*((hour * hour_us, 2) for hour in (10, 11, 12, 9, 10, 11, 13)))
    places = {hour: await find_place(AtTime(hour * hour_us), log) for hour in (9, 11, 12, 13, 14)}
    assert places == {9: 0, 11: 2, 12: 4, 13: 12, 14: 14}


async def test_a_time_is_found_by_reading_little_of_a_long_log():
    second_us = 1_000_000
    log = await log_of(*((second * second_us, 1) for second in range(2000)))
    reads = []
    read = log.read
    log.read = lambda after: reads.append(after) or read(after)
    assert await find_place(AtTime(1500 * second_us), log) == 1500
    assert len(reads) < 40
