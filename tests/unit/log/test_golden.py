"""The bytes of format versions 1 and 2. Files of released versions must stay readable for ever."""

from itertools import pairwise
from pathlib import Path

import pytest
from msgspec.structs import replace

from log_samples import SCHEMA, SMALL, PlainLog, contents, draft, hlcs_of, parts_of, rows_of
from tailrace.log.compact import compact, put_in_place
from tailrace.log.recover import examine
from tailrace.log.segment import statistics_name
from tailrace.log.segments import Segments, list_segments
from tailrace.log.statistics import Skipper, survey
from tailrace.log.verify import verify
from tailrace.model.number import SchemaId, hlc_time_us
from tailrace.testing.clock import FakeClock
from tailrace.testing.files import MemoryFiles

pytestmark = pytest.mark.usefixtures("encoder")

GOLDENS = Path(__file__).parents[2] / "golden" / "log"
GOLDEN = GOLDENS / "version-1-hybrid"
OLDEST = GOLDENS / "version-1"
"""Written before commits had hybrid timestamps and migration marks."""

PARTS = GOLDENS / "version-2"
"""A commit of three parts between two others; the segment with it is of version 2, the first one of version 1."""

COMPACTED = GOLDENS / "version-1-compacted"
"""The log of `version-1-hybrid`, its first segment compacted, with statistics in their first form."""

SURVEYED = GOLDENS / "version-1-surveyed"
"""The same with statistics as they are written today."""

SEGMENTS = ["oplog-00000000000000000001.bin", "oplog-00000000000000000002.bin"]

DRAFTS = [draft(number, 1 + number % 3) for number in range(1, 7)]


def written() -> MemoryFiles:
    """Return the log that the golden files hold: two segments, the first sealed."""
    files, clock = MemoryFiles(), FakeClock()
    log = PlainLog(files, replace(SMALL, segment_bytes_max=4000, zero_ahead_bytes=0), clock)
    for one in DRAFTS:
        log.append(one)
        clock.advance(1)
    log.writer.close()
    return files


def written_parts() -> MemoryFiles:
    """Return the log that the golden files of version 2 hold."""
    files, clock = MemoryFiles(), FakeClock()
    log = PlainLog(files, replace(SMALL, zero_ahead_bytes=0), clock)
    for one in (draft(1, 2), *parts_of(draft(2, 7), 3), draft(3)):
        log.append(one)
        clock.advance(1)
    log.writer.close()
    return files


def written_compacted() -> MemoryFiles:
    """Return the log that the golden files of a compacted segment hold."""
    files = written()
    steps = compact(files, list_segments(files)[0])
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            put_in_place(files, stop.value)
            break
    segments = Segments(files, {SchemaId(1): SCHEMA})
    found = examine(files)
    segments.replace(found.segments, found.sparse, found.end)
    for _ in survey(files, segments, segments.entries[0]):
        pass
    return files


def golden(directory: Path = GOLDEN) -> MemoryFiles:
    files = MemoryFiles()
    for path in directory.iterdir():
        files.put(path.name, path.read_bytes())
    return files


@pytest.mark.parametrize("directory", [OLDEST, GOLDEN], ids=lambda directory: directory.name)
def test_a_log_of_version_1_is_read(directory):
    files = golden(directory)
    assert contents(files) == rows_of(DRAFTS)
    assert verify(files).problems == ()


@pytest.mark.parametrize("directory", [OLDEST, GOLDEN], ids=lambda directory: directory.name)
def test_a_log_of_version_1_is_continued(directory):
    files = golden(directory)
    log = PlainLog(files)
    log.append(draft(7))
    assert contents(files) == rows_of([*DRAFTS, draft(7)])


def test_commits_of_old_segments_get_timestamps_near_their_append_that_rise_and_go_on():
    files = golden(OLDEST)
    log = PlainLog(files)
    log.append(draft(7))
    stamps = {index: (hlc, hlc_time_us(hlc) // 1_000_000) for index, hlc in hlcs_of(files).items()}
    assert list(stamps) == [1, 2, 3, 4, 5, 6, 7]
    rising = [hlc for hlc, _ in stamps.values()]
    assert all(one < next_ for one, next_ in pairwise(rising))
    first_s = FakeClock().now_us() // 1_000_000
    assert [second for _, second in stamps.values()][:6] == [first_s + number for number in range(6)]


@pytest.mark.parametrize("name", sorted(path.name for path in GOLDEN.iterdir()))
def test_the_same_bytes_are_written(name):
    assert written().bytes_of(name) == (GOLDEN / name).read_bytes()


def test_no_file_is_missing():
    assert written().names() == golden().names()


def test_a_log_of_version_2_is_read_and_continued():
    files = golden(PARTS)
    assert contents(files) == rows_of([draft(1, 2), draft(2, 7), draft(3)])
    assert verify(files).problems == ()
    PlainLog(files).append(draft(4))
    assert contents(files) == rows_of([draft(1, 2), draft(2, 7), draft(3), draft(4)])


@pytest.mark.parametrize("name", sorted(path.name for path in PARTS.iterdir()))
def test_the_same_bytes_are_written_for_parts(name):
    assert written_parts().bytes_of(name) == (PARTS / name).read_bytes()
    assert written_parts().names() == golden(PARTS).names()


@pytest.mark.parametrize("directory", [COMPACTED, SURVEYED])
def test_a_compacted_log_is_read_and_continued(directory):
    files = golden(directory)
    assert contents(files) == rows_of(DRAFTS)
    assert hlcs_of(files) == hlcs_of(golden())
    assert verify(files).problems == ()
    PlainLog(files).append(draft(7))
    assert contents(files) == rows_of([*DRAFTS, draft(7)])


@pytest.mark.parametrize("name", sorted(path.name for path in SURVEYED.iterdir()))
def test_the_same_bytes_are_written_by_compaction(name):
    assert written_compacted().bytes_of(name) == (SURVEYED / name).read_bytes()
    assert written_compacted().names() == golden(SURVEYED).names()
    assert name.endswith(".sta") or (SURVEYED / name).read_bytes() == (COMPACTED / name).read_bytes()


def test_statistics_in_their_first_form_are_written_again():
    files = golden(COMPACTED)
    found = examine(files)
    segments = Segments(files, {SchemaId(1): SCHEMA})
    segments.replace(found.segments, found.sparse, found.end)
    assert Skipper(files, segments).load(segments.entries[0]) is None
    for _ in survey(files, segments, segments.entries[0]):
        pass
    name = statistics_name(segments.entries[0].first_index)
    assert files.bytes_of(name) == (SURVEYED / name).read_bytes()


def test_a_compacted_segment_stays_readable_for_a_program_that_knows_no_compaction():
    data = written_compacted().bytes_of(SEGMENTS[0])
    assert int.from_bytes(data[8:12], "little") == 1
    header_bytes = int.from_bytes(data[16:20], "little")
    assert data[header_bytes - 8 : header_bytes] == b"TRCOMPCT"
    assert data[header_bytes : header_bytes + 4] == b"TRFR"


def test_segments_without_parts_stay_readable_for_a_program_that_knows_no_parts():
    versions = [int.from_bytes(written_parts().bytes_of(name)[8:12], "little") for name in SEGMENTS]
    assert versions == [1, 2]
