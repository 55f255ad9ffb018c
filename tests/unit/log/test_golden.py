"""The bytes of format version 1. Files of released versions must stay readable for ever."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from log_samples import SMALL, PlainLog, contents, draft, rows_of
from tailrace.log.verify import verify
from tailrace.testing.clock import FakeClock
from tailrace.testing.files import MemoryFiles

GOLDEN = Path(__file__).parents[2] / "golden" / "log" / "version-1"
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


def golden() -> MemoryFiles:
    files = MemoryFiles()
    for path in GOLDEN.iterdir():
        files.put(path.name, path.read_bytes())
    return files


def test_a_log_of_version_1_is_read():
    files = golden()
    assert contents(files) == rows_of(DRAFTS)
    assert verify(files).problems == ()


def test_a_log_of_version_1_is_continued():
    files = golden()
    log = PlainLog(files)
    log.append(draft(7))
    assert contents(files) == rows_of([*DRAFTS, draft(7)])


@pytest.mark.parametrize("name", sorted(path.name for path in GOLDEN.iterdir()))
def test_the_same_bytes_are_written(name):
    assert written().bytes_of(name) == (GOLDEN / name).read_bytes()


def test_no_file_is_missing():
    assert written().names() == golden().names()
