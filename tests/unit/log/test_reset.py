"""Beginning a log anew: numbers go on with a gap, whatever state the old log is in, and a crash leaves no mixture."""

import pytest

from log_samples import SCHEMA, SMALL, PlainLog, contents, draft
from tailrace.log.log import Log
from tailrace.log.reset import reset
from tailrace.log.segment import segment_name
from tailrace.log.state import STATE_NAME
from tailrace.log.verify import verify
from tailrace.model.errors import BehindHorizonError, CorruptSegmentError
from tailrace.model.number import Index, Offset
from tailrace.testing.clock import FakeClock
from tailrace.testing.files import Crash, MemoryFiles

CLOCK = FakeClock()


def old_log():
    """Return a log of three commits with six changes in two segments."""
    files = MemoryFiles()
    log = PlainLog(files)
    log.schemas.put(SCHEMA)
    for number in (1, 2):
        log.append(draft(number, number))
    log.writer._outdated = True  # the next frame begins a segment
    log.append(draft(3, 3))
    return files


async def test_the_new_log_goes_on_with_the_numbers_behind_a_gap():
    files = old_log()
    begun = reset(files, CLOCK, files.remove)
    assert (begun.first_offset, begun.first_index) == (8, 5)
    log = await Log.open(files, SMALL, CLOCK)
    assert (log.head, log.horizon, log.last_index, log.position) == (7, 8, 4, None)
    assert log.latest_schema(SCHEMA.table) == (1, SCHEMA)
    for cursor in (0, 5, 6):
        with pytest.raises(BehindHorizonError):
            await log.read(Offset(cursor))
    assert await log.read(Offset(7)) is None
    await log.append([draft(9)])
    await log.close()
    assert [row[:3] for row in contents(files)] == [(8, 5, b"[9,0]")]
    assert verify(files).problems == ()


async def test_a_new_log_without_a_change_survives_a_restart():
    files = old_log()
    reset(files, CLOCK, files.remove)
    for _ in range(2):
        log = await Log.open(files, SMALL, CLOCK)
        assert (log.head, log.horizon) == (7, 8)
        await log.close()
    assert verify(files).problems == ()


def test_all_of_the_old_log_is_put_away():
    files = old_log()
    old = set(files.names())
    away = []
    reset(files, CLOCK, lambda name: (away.append(name), files.remove(name)))
    assert set(away) == old - {"schemas.jsonl"}
    assert set(files.names()) == {"schemas.jsonl", segment_name(Index(5))}


@pytest.mark.parametrize("damage", ["state", "header", "frame", "tail"])
def test_a_damaged_log_can_be_begun_anew_and_no_number_is_used_twice(damage):
    files = old_log()
    newest = segment_name(Index(3))
    data = bytearray(files.bytes_of(newest))
    place = {"state": 0, "header": 3, "frame": data.index(b"TRFR") + 60, "tail": len(data) - 600}[damage]
    if damage == "state":
        files.remove(STATE_NAME)
    else:
        data[place] ^= 0xFF
        files.put(newest, bytes(data))
    assert reset(files, CLOCK, files.remove).first_offset == 8
    assert verify(files).problems == ()


def test_a_crash_at_any_moment_leaves_the_old_log_or_one_that_is_refused_until_it_is_done_again():
    whole = contents(old_log())
    seen = set()
    for moment in range(20):
        files = old_log()
        files.crash_at = files.operations + moment
        try:
            reset(files, CLOCK, files.remove)
        except Crash:
            pass
        else:
            break
        for seed in range(4):
            left = files.after_crash(seed)
            try:
                seen.add("old" if contents(left) == whole else "new")
                assert contents(left) in (whole, [])
            except CorruptSegmentError:
                seen.add("refused")
            assert reset(left, CLOCK, left.remove).first_offset in (8, 9)
            assert contents(left) == []
    assert seen == {"old", "new", "refused"}
