"""The writer under faults and crashes: acknowledged commits stay, refused ones do not count."""

import errno
import random

import pytest
from msgspec.structs import replace

from log_samples import SMALL, PlainLog, contents, draft, rows_of
from tailrace.log.recover import read_state, recover
from tailrace.log.retention import horizon_by_changes, removable
from tailrace.log.segment import index_name, segment_index
from tailrace.log.segments import list_segments
from tailrace.log.verify import verify
from tailrace.log.writer import disk_error
from tailrace.model.errors import LogFullError, LogWriteError
from tailrace.model.number import Offset
from tailrace.testing.clock import FakeClock
from tailrace.testing.files import Crash, MemoryFiles

pytestmark = pytest.mark.usefixtures("encoder")

ROTATING = replace(SMALL, segment_bytes_max=3500)


def segments(files: MemoryFiles) -> list[str]:
    return [name for name in files.names() if segment_index(name) is not None]


@pytest.mark.parametrize("options", [SMALL, ROTATING], ids=["in one segment", "in several segments"])
def test_a_crash_at_any_operation_leaves_every_acknowledged_commit_and_no_hole(options):
    """Phantom, never hole: what was acknowledged is there; one more commit may be; after it everything goes on."""
    drafts = [draft(number, 1 + number % 4, "x" * (number * 40)) for number in range(1, 9)]
    at = 0
    while True:
        files = MemoryFiles()
        files.crash_at = at
        acknowledged = 0
        try:
            log = PlainLog(files, options)
            for one in drafts:
                log.append(one)
                acknowledged += 1
            log.writer.close()
        except Crash:
            for seed in range(8):
                after = files.after_crash(seed)
                again = PlainLog(after, options)
                commits = again.found.last_index
                assert acknowledged <= commits <= acknowledged + 1
                assert again.found.position == (drafts[commits - 1].position if commits else None)
                for one in drafts[commits:]:
                    again.append(one)
                assert contents(after) == rows_of(drafts)
                assert verify(after).problems == ()
            at += 1
        else:
            break
    assert at > 30


def retain(files: MemoryFiles, log: PlainLog, changes_max: int) -> None:
    """Do what the log does from time to time: write down the horizon, then remove what lies below it."""
    entries, head = list_segments(files), Offset(log.writer.next_offset - 1)
    horizon = horizon_by_changes(head, changes_max)
    count = removable([segment.first_offset for segment in entries], horizon, head)
    log.writer.move_horizon(horizon, durable=bool(count))
    for segment in entries[:count]:
        files.remove(segment.name)
        files.remove(index_name(segment.first_index))


def test_a_crash_at_any_operation_of_retention_leaves_the_newest_changes_and_a_sound_log():
    options = replace(ROTATING, retention_changes=6)
    drafts = [draft(number, 1 + number % 4, "x" * (number * 40)) for number in range(1, 9)]
    at = removed = 0
    while True:
        files = MemoryFiles()
        files.crash_at = at
        acknowledged = 0
        try:
            log = PlainLog(files, options)
            for one in drafts:
                log.append(one)
                acknowledged += 1
                retain(files, log, 6)
        except Crash:
            for seed in range(5):
                after = files.after_crash(seed)
                assert verify(after).problems == ()
                again = PlainLog(after, options)
                commits = again.found.last_index
                assert acknowledged <= commits <= acknowledged + 1
                rows = rows_of(drafts[:commits])
                kept = contents(after)
                assert kept == rows[len(rows) - len(kept) :]
                assert len(kept) >= min(6, len(rows))
                removed += len(kept) < len(rows)
            at += 1
        else:
            break
    assert at > 50
    assert removed > 50


def test_a_restart_never_repeats_and_goes_on_with_the_next_numbers():
    files = MemoryFiles()
    drafts = [draft(number, 2) for number in range(1, 13)]
    for begin in range(0, 12, 3):
        log = PlainLog(files, ROTATING)
        for one in drafts[begin : begin + 3]:
            log.append(one)
        log.writer.close()
    assert contents(files) == rows_of(drafts)
    assert len(segments(files)) > 1


def test_a_full_disk_refuses_the_frame_and_works_again_when_there_is_room():
    files = MemoryFiles()
    log = PlainLog(files)
    log.append(draft(1))
    files.capacity_bytes = files.used_bytes() + 100
    for _ in range(3):
        with pytest.raises(OSError, match="No space") as caught:
            log.append(draft(2, 100))
        assert isinstance(disk_error(caught.value), LogFullError)
    assert contents(files.copy()) == rows_of([draft(1)])
    files.capacity_bytes = None
    log.append(draft(3))
    assert contents(files) == rows_of([draft(1), draft(3)])
    assert verify(files).problems == ()


def test_a_disk_with_room_for_the_frame_but_not_for_the_zeros_behind_it_is_not_full():
    files = MemoryFiles()
    log = PlainLog(files, replace(SMALL, zero_ahead_bytes=1 << 20))
    files.capacity_bytes = files.used_bytes() + 5000
    log.append(draft(1))
    log.append(draft(2))
    assert contents(files) == rows_of([draft(1), draft(2)])


@pytest.mark.parametrize(("note_bytes", "zeros"), [(100, 1 << 20), (60_000, 1 << 20), (70_000, 0)])
def test_zeros_are_written_behind_small_frames_alone(note_bytes, zeros):
    files = MemoryFiles()
    log = PlainLog(files, replace(SMALL, zero_ahead_bytes=1 << 20))
    stored = log.append(draft(1, note="n" * note_bytes))
    assert files.open(stored.segment.name).size() == stored.end + zeros


@pytest.mark.parametrize("faults", [1, 2, 3])
def test_a_failed_write_does_not_count_and_the_segment_goes_on(faults):
    files = MemoryFiles()
    log = PlainLog(files)
    log.append(draft(1))
    files.fail_writes = faults
    for _ in range(faults):
        with pytest.raises(OSError, match="Input/output") as caught:
            log.append(draft(2))
        assert isinstance(disk_error(caught.value), LogWriteError)
    log.append(draft(3))
    assert contents(files.after_crash(0)) == rows_of([draft(1), draft(3)])
    assert len(segments(files)) == 1


@pytest.mark.parametrize("faults", [1, 2, 3])
def test_a_failed_sync_does_not_count_and_its_bytes_are_never_synced_again(faults):
    """The fake loses what a failed sync did not write, and lies ever after: only another segment helps."""
    files = MemoryFiles()
    log = PlainLog(files)
    log.append(draft(1))
    files.fail_syncs = faults
    while files.fail_syncs:
        with pytest.raises(OSError, match="Input/output"):
            log.append(draft(2))
    log.append(draft(3), draft(4))
    log.append(draft(5))
    for seed in range(6):
        after = files.after_crash(seed)
        assert contents(after) == rows_of([draft(1), draft(3), draft(4), draft(5)])
        assert verify(after).problems == ()
    assert len(segments(files)) == 2


def test_a_sync_that_fails_on_a_segments_first_frame_makes_that_segment_anew():
    files = MemoryFiles()
    log = PlainLog(files, ROTATING)
    files.crash_at = None
    drafts = [draft(number, 6) for number in range(1, 12)]
    for one in drafts:
        for _ in range(2):
            files.fail_syncs = 1
            with pytest.raises(OSError, match="Input/output"):
                log.append(one)
        log.append(one)
    assert contents(files.after_crash(0)) == rows_of(drafts)
    assert verify(files).problems == ()


@pytest.mark.parametrize("seed", range(20))
def test_faults_at_random_never_lose_an_acknowledged_commit(seed):
    chance = random.Random(seed)
    files = MemoryFiles()
    log = PlainLog(files, ROTATING)
    kept, refused = [], 0
    for number in range(1, 60):
        files.fail_writes = int(chance.random() < 0.15)
        files.fail_syncs = int(chance.random() < 0.15)
        files.capacity_bytes = files.used_bytes() + chance.randrange(4000) if chance.random() < 0.2 else None
        one = draft(number, chance.randrange(1, 9))
        try:
            log.append(one)
            kept.append(one)
        except OSError:
            refused += 1
    assert refused
    files.fail_syncs = files.fail_writes = 0
    assert contents(files) == rows_of(kept)
    assert contents(files.after_crash(seed)) == rows_of(kept)
    assert verify(files).problems == ()


def test_a_refused_frame_is_gone_at_once_if_the_disk_lets_us():
    for fault in ("fail_writes", "fail_syncs"):
        files = MemoryFiles()
        log = PlainLog(files)
        log.append(draft(1))
        setattr(files, fault, 1)
        with pytest.raises(OSError, match="Input/output"):
            log.append(draft(2))
        assert contents(files.after_crash(1)) == rows_of([draft(1)])


def test_the_state_tells_other_processes_what_is_synced():
    files = MemoryFiles()
    log = PlainLog(files)
    stored = log.append(draft(1, 3), draft(2, 2))
    state = read_state(files)
    assert state is not None
    assert (state.head, state.last_index, state.synced_bytes, state.active_index) == (5, 2, stored.end, 1)


def test_a_frame_whose_sync_failed_is_not_in_the_state():
    files = MemoryFiles()
    log = PlainLog(files)
    log.append(draft(1))
    before = read_state(files)
    files.fail_syncs = 1
    with pytest.raises(OSError, match="Input/output"):
        log.append(draft(2))
    assert read_state(files) == before


def test_a_state_of_another_length_is_made_anew():
    files = MemoryFiles()
    files.put("state", b"x" * 100)
    PlainLog(files).append(draft(1))
    state = read_state(files)
    assert state is not None
    assert state.head == 1


def test_an_old_segment_is_sealed_before_the_next_frame():
    files, clock = MemoryFiles(), FakeClock()
    log = PlainLog(files, replace(SMALL, segment_age_max_s=60.0), clock)
    log.append(draft(1))
    clock.advance(59)
    log.append(draft(2))
    assert len(segments(files)) == 1
    clock.advance(1)
    log.append(draft(3))
    assert len(segments(files)) == 2
    assert contents(files) == rows_of([draft(1), draft(2), draft(3)])


def test_the_horizon_never_moves_back_over_a_restart():
    files = MemoryFiles()
    log = PlainLog(files)
    for number in range(1, 10):
        log.append(draft(number))
    log.writer.move_horizon(Offset(6))
    log.writer.move_horizon(Offset(4))
    log.writer.close()
    assert recover(files).horizon == 6


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_too_many_open_files_are_not_blamed_on_the_disk(number):
    error = disk_error(OSError(number, "Too many open files"))
    assert isinstance(error, LogWriteError)
    assert "ulimit -n" in str(error)
    assert "disk" not in str(error)
