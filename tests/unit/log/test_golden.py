"""The bytes of format version 1. Files of released versions must stay readable for ever."""

from itertools import pairwise
from pathlib import Path

import pytest
from msgspec.structs import replace

from log_samples import SMALL, PlainLog, contents, draft, hlcs_of, rows_of
from tailrace.log.verify import verify
from tailrace.model.hlc import hlc_time_us
from tailrace.testing.clock import FakeClock
from tailrace.testing.files import MemoryFiles

GOLDENS = Path(__file__).parents[2] / "golden" / "log"
GOLDEN = GOLDENS / "version-1-hybrid"
OLDEST = GOLDENS / "version-1"
"""Written before commits had hybrid timestamps and migration marks."""

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
