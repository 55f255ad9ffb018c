"""Compaction: the same changes, commits and positions in fewer frames, under the same name, whatever happens."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from log_samples import SMALL, PlainLog, contents, draft, hlcs_of, parts_of, rows_in, rows_of
from tailrace.log.compact import Compacted, compact, may_compact, put_in_place
from tailrace.log.decode import decode
from tailrace.log.frame import pack_frame
from tailrace.log.recover import examine
from tailrace.log.retention import age_horizon
from tailrace.log.schemas import Schemas
from tailrace.log.segment import PARTS_VERSION, Segment, index_name, pack_segment_header, segment_name
from tailrace.log.segments import Segments, list_segments
from tailrace.log.sparse import SparseIndex
from tailrace.log.verify import verify
from tailrace.model.chunk import ENVELOPE
from tailrace.model.commit import Draft
from tailrace.model.errors import CorruptSegmentError
from tailrace.model.number import Index, Offset
from tailrace.testing.clock import FakeClock
from tailrace.testing.files import Crash, MemoryFiles

DRAFTS = [draft(number, 1 + number % 3) for number in range(1, 61)]
FIRST = segment_name(Index(1))


def written(drafts: list[Draft], clock: FakeClock | None = None, step_us: int = 0) -> MemoryFiles:
    """Return a log of two segments, one frame for each commit, the last one in the second segment."""
    files = MemoryFiles()
    clock = clock or FakeClock()
    log = PlainLog(files, replace(SMALL, segment_bytes_max=1 << 30), clock)
    for one in drafts[:-1]:
        for part in [one] if isinstance(one, Draft) else one:
            log.append(part)
        clock.advance(step_us / 1_000_000)
    log.writer._options = replace(SMALL, segment_bytes_max=1)
    log.append(drafts[-1])
    log.writer.close()
    return files


def first_of(files: MemoryFiles) -> Segment:
    return list_segments(files)[0]


def made_of(files: MemoryFiles, segment: Segment | None = None) -> Compacted | None:
    """Take all steps."""
    steps = compact(files, segment or first_of(files))
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            return stop.value


def compacted(files: MemoryFiles) -> MemoryFiles:
    made = made_of(files)
    assert made is not None
    put_in_place(files, made)
    return files


def segments_of(files: MemoryFiles) -> Segments:
    found = examine(files)
    schemas = Schemas(files)
    schemas.load()
    segments = Segments(files, schemas.known)
    segments.replace(found.segments, found.sparse, found.end)
    return segments


def test_a_compacted_segment_holds_the_same_in_one_frame():
    files = written(DRAFTS)
    stamps, size = hlcs_of(files), len(files.bytes_of(FIRST))
    before = first_of(files)
    compacted(files)
    after = first_of(files)
    assert (after.compacted, after.name, after.version) == (True, before.name, before.version)
    assert after.identity != before.identity
    assert (after.first_offset, after.previous_index, after.created_us) == (1, 0, before.created_us)
    assert contents(files) == rows_of(DRAFTS)
    assert hlcs_of(files) == stamps
    assert len(segments_of(files).frames(after, 0)) == 1
    assert len(files.bytes_of(FIRST)) < size / 4
    assert verify(files).problems == ()
    assert not may_compact(after)
    assert made_of(files) is None


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 3), st.integers(0, 400)), min_size=8, max_size=60))
def test_whatever_the_commits_are_they_stay_whole_and_in_their_order(commits):
    drafts, appended = [], []
    for number, (changes, parts, wide) in enumerate(commits, 1):
        one = draft(number, changes, "w" * wide)
        drafts.append(one)
        appended.append(parts_of(one, parts) if parts > 1 and changes > 1 else one)
    last = draft(len(drafts) + 1)
    files = written([*appended, last])
    stamps = hlcs_of(files)
    for segment in list_segments(files)[:-1]:
        made = made_of(files, segment)
        if made is not None:
            put_in_place(files, made)
    assert contents(files) == rows_of([*drafts, last])
    assert hlcs_of(files) == stamps
    assert verify(files).problems == ()
    assert examine(files).position == last.position


def test_parts_of_a_commit_stay_frames_of_their_own_between_what_is_joined():
    drafts = [draft(1, 12), *(draft(number) for number in range(2, 21)), draft(21, 12)]
    drafts += [draft(number) for number in range(22, 60)]
    files = written([parts_of(drafts[0], 3), *drafts[1:20], parts_of(drafts[20], 3), *drafts[21:]])
    compacted(files)
    headers = [header for _, header in segments_of(files).frames(first_of(files), 0)]
    assert [(header.commit_count, header.change_count) for header in headers] == [
        *((0, 4), (0, 4), (1, 4)),
        (19, 19),
        *((0, 4), (0, 4), (1, 4)),
        (37, 37),
    ]
    assert first_of(files).version == PARTS_VERSION
    assert contents(files) == rows_of(drafts)
    assert verify(files).problems == ()


def test_a_crash_at_any_operation_leaves_the_old_segment_or_the_new_one():
    whole = written(DRAFTS)
    moment, seen = 0, set()
    while True:
        for seed in range(6):
            files = whole.copy()
            files.crash_at = files.operations + moment
            try:
                compacted(files)
            except Crash:
                pass
            else:
                assert seen == {False, True}
                return
            after = files.after_crash(seed)
            PlainLog(after).writer.close()
            assert contents(after) == rows_of(DRAFTS)
            assert verify(after).problems == ()
            assert not [name for name in after.names() if name.endswith(".tmp")]
            seen.add(first_of(after).compacted)
        moment += 1


@pytest.mark.parametrize("fault", ["fail_writes", "fail_syncs"])
@pytest.mark.parametrize("after", range(6))
def test_a_disk_that_refuses_leaves_the_old_segment_or_the_new_one_and_no_temporary_file(fault, after):
    files = written(DRAFTS)
    steps = compact(files, first_of(files))
    try:
        for _ in range(after):
            next(steps)
        setattr(files, fault, 1)
        while True:
            next(steps)
    except StopIteration as stop:
        try:
            put_in_place(files, stop.value)
        except OSError:
            assert fault == "fail_syncs"
    except OSError:
        assert not first_of(files).compacted
    assert contents(files) == rows_of(DRAFTS)
    assert not [name for name in files.names() if name.endswith(".tmp")]


class Noting:
    """An open file that notes how much was written before each sync."""

    def __init__(self, file, unsynced: list[int]) -> None:
        self._file = file
        self._unsynced = unsynced

    def __getattr__(self, name: str):
        return getattr(self._file, name)

    def write_at(self, place, parts) -> None:
        self._unsynced[-1] += sum(map(len, parts))
        self._file.write_at(place, parts)

    def sync(self) -> None:
        self._unsynced.append(0)
        self._file.sync()


def test_the_disk_gets_a_compacted_segment_bit_by_bit(monkeypatch):
    monkeypatch.setattr("tailrace.log.compact._FRAME_BYTES_MAX", 2_000)
    monkeypatch.setattr("tailrace.log.compact._SYNC_BYTES", 3_000)
    files = written([draft(number, 1) for number in range(1, 400)])
    unsynced = [0]
    create = files.create
    monkeypatch.setattr(files, "create", lambda name: Noting(create(name), unsynced))
    made = made_of(files)
    assert made is not None
    assert len(unsynced) > 4
    assert max(unsynced) < 3_000 + 2 * 2_000, "one frame more than is enough for a sync"
    assert unsynced[-1] == 0, "all of it is on disk"


def test_a_step_takes_apart_few_frames(monkeypatch):
    monkeypatch.setattr("tailrace.log.compact._STEP_FRAMES", 10)
    monkeypatch.setattr("tailrace.log.compact._STEP_BYTES", 5_000)
    files = written([draft(number, 1) for number in range(1, 400)])
    taken = [0]
    monkeypatch.setattr(
        "tailrace.log.compact.decode", lambda data, *rest: taken.append(len(data)) or decode(data, *rest)
    )
    steps = compact(files, first_of(files))
    count = sum(1 for _ in steps)
    assert max(taken) < 5_000 + 1_500, "one frame more than is enough"
    assert count >= 399 // 10 + len(taken)


def test_what_is_given_up_leaves_nothing_behind():
    files = written(DRAFTS)
    names = files.names()
    steps = compact(files, first_of(files))
    for _ in range(2):
        next(steps)
    assert f"{FIRST}.tmp" in files.names()
    steps.close()
    assert files.names() == names


def test_large_frames_and_columns_of_a_newer_version_are_left_alone():
    large = written([draft(number, 3000) for number in range(1, 8)])
    assert made_of(large) is None
    newer = ENVELOPE.append(ENVELOPE.field("hlc").with_name("from_the_future"))
    assert not may_compact(replace(first_of(large), schema=newer))


def test_damage_is_named_and_nothing_is_replaced():
    files = written(DRAFTS)
    data = bytearray(files.bytes_of(FIRST))
    data[-20] ^= 1
    files.put(FIRST, bytes(data))
    with pytest.raises(CorruptSegmentError):
        made_of(files)
    assert files.bytes_of(FIRST) == bytes(data)
    assert f"{FIRST}.tmp" not in files.names()


def test_a_reader_that_knows_the_old_file_reads_the_new_one_right():
    files = written(DRAFTS)
    rows = rows_of(DRAFTS)
    segments = segments_of(files)
    old = segments.entries[0]
    assert segments.load(Offset(50))[0].first == 1
    compacted(files)
    for offset in (1, 50, 100):
        chunks = segments.load(Offset(offset))
        assert [row for chunk in chunks for row in rows_in(chunk)] == rows[: chunks[-1].last]
    assert [header.commit_count for _, header in segments.frames(old, 0)] == [59]
    assert segments.find(Offset(7)).segment.compacted
    assert segments.index(old)[1] == len(files.bytes_of(FIRST))


def test_a_reader_whose_newest_segment_was_compacted_since_reads_on():
    files = written(DRAFTS)
    segments, found = segments_of(files), examine(files)
    old = found.segments[0]
    places = [place for place, _ in segments.frames(old, 0)]
    active = SparseIndex()
    for place, header in segments.frames(old, 0)[:10]:
        active.add(header, place)
    segments.replace([old], active, places[10])  # as it was when ten frames were synced
    assert segments.load(Offset(1))[-1].last == 20
    compacted(files)
    assert segments.load(Offset(1))[-1].last == len(rows_of(DRAFTS[:-1]))


@pytest.mark.parametrize("salted", [False, True])
def test_an_index_of_the_old_file_is_not_taken_for_that_of_the_new_one(salted):
    files = written(DRAFTS)
    misleading = SparseIndex()
    for place, header in segments_of(files).frames(first_of(files), 0)[1:]:
        misleading.add(header, place)
    compacted(files)
    segment, size = first_of(files), len(files.bytes_of(FIRST))
    salt = segment.identity if salted else 0
    files.put(index_name(Index(1)), misleading.pack(Index(1), size, salt))
    assert contents(files) == rows_of(DRAFTS)
    segments = segments_of(files)
    assert [header.commit_count for _, header in segments.frames(segment, -1)] == [59]


def test_retention_by_age_never_forgets_sooner_than_before():
    clock = FakeClock()
    files = written(DRAFTS, clock, step_us=60_000_000)
    segments, head = segments_of(files), len(rows_of(DRAFTS))
    times = [header.append_time_us for _, header in segments.frames(first_of(files), 0)]
    before = [age_horizon(segments, time_us, head) for time_us in times]
    compacted(files)
    after = [age_horizon(segments_of(files), time_us, head) for time_us in times]
    assert all(new <= old for new, old in zip(after, before, strict=True))
    spans = {header.change_count for _, header in segments_of(files).frames(first_of(files), 0)}
    assert max(spans) <= 33  # ten minutes
    assert after[-1] > 1


def test_a_segment_without_timestamps_gets_those_that_readers_made_up():
    files = written(DRAFTS)
    older = ENVELOPE.remove(ENVELOPE.get_field_index("migration")).remove(ENVELOPE.get_field_index("hlc"))
    _strip(files, older)
    stamps = hlcs_of(files)
    compacted(files)
    assert first_of(files).schema == ENVELOPE
    assert hlcs_of(files) == stamps
    assert contents(files) == rows_of(DRAFTS)
    assert verify(files).problems == ()


def _strip(files: MemoryFiles, schema: object) -> None:
    """Write the first segment again with fewer columns, as an older version would have written it."""
    segment = first_of(files)
    data = files.bytes_of(FIRST)
    made = pack_segment_header(
        first_offset=segment.first_offset,
        first_index=segment.first_index,
        previous_index=segment.previous_index,
        created_us=segment.created_us,
        schema=schema,
    )
    for place, header in segments_of(files).frames(segment, 0):
        frame = data[place : place + header.frame_bytes]
        batch = decode(frame, 0, segment)[0][0].select(schema.names)
        payload = batch.serialize().to_pybytes()
        head = pack_frame(
            payload,
            change_count=header.change_count,
            commit_count=header.commit_count,
            first_offset=header.first_offset,
            first_index=header.first_index,
            append_time_us=header.append_time_us,
        )
        made += head + payload
    files.put(FIRST, made)
