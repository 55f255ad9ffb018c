"""The log in files, as a pipeline reads it."""

import asyncio

import pytest

from feeding import TIME_US, draft_of, schema_of
from tailrace.clock import SystemClock
from tailrace.log.files import DiskFiles
from tailrace.log.log import Log
from tailrace.log.options import LogOptions
from tailrace.log.reader import LogReader
from tailrace.log.segments import Segments
from tailrace.log.statistics import survey
from tailrace.model.commit import Draft
from tailrace.model.errors import BehindHorizonError, BeyondHeadError, ConfigError, UnknownTableError
from tailrace.model.number import Position
from tailrace.model.op import Op
from tailrace.model.wanted import Conditions
from tailrace.pipeline.files_origin import FilesOrigin


def write(directory, *commits, tables=("users",), retention=None):
    """Append commits of (table number, count of inserts)."""

    async def append():
        options = LogOptions(retention_changes=retention, retention_bytes=None, retention_age_s=None)
        log = await Log.open(DiskFiles(directory), options, SystemClock())
        for name in tables:
            await log.put_schema(schema_of(name))
        for number, count in commits:
            await log.append([draft_of([(Op.INSERT, number)] * count)])
        await log.close()

    asyncio.run(append())
    return directory


def offsets(batches):
    return [offset for _, batch in batches for offset in batch.column("offset").to_pylist()]


def test_a_directory_is_that_of_a_shard_or_a_data_directory_with_one(tmp_path):
    write(tmp_path / "oplog" / "3", (1, 2))
    for directory in (tmp_path, tmp_path / "oplog" / "3"):
        window = FilesOrigin(str(directory), "app").window(())
        assert (window.head, window.horizon, [s.table.name for s in window.schemas.values()]) == (2, 1, ["users"])


@pytest.mark.parametrize(("name", "source"), [("nowhere", "app"), ("oplog", "app"), (".", "other")])
def test_a_directory_that_is_not_there_or_holds_no_log_of_the_source_is_an_error(tmp_path, name, source):
    write(tmp_path / "oplog" / "3", (1, 2))
    with pytest.raises(ConfigError, match="log_dir"):
        FilesOrigin(str(tmp_path / name), source)


def test_what_was_appended_later_is_seen(tmp_path):
    write(tmp_path, (1, 2))
    origin = FilesOrigin(str(tmp_path), "app")
    write(tmp_path, (1, 3))
    assert origin.window(()).head == 5
    assert offsets(origin.batches(1, 5, ())) == [2, 3, 4, 5]
    with pytest.raises(BeyondHeadError):
        list(origin.batches(1, 6, ()))


def test_changes_of_some_tables_alone_are_read(tmp_path):
    origin = FilesOrigin(str(write(tmp_path, (1, 2), (2, 1), (1, 1), tables=("users", "orders"))), "app")
    assert offsets(origin.batches(0, 4, ["orders"])) == [3]
    assert offsets(origin.batches(0, 4, ["users"])) == [1, 2, 4]
    with pytest.raises(UnknownTableError):
        list(origin.batches(0, 4, ["nothing"]))


def write_blocks(directory):
    """Write a thousand commits of an insert each, keys and times rising, with statistics of their blocks."""

    async def append():
        options = LogOptions(retention_bytes=None, retention_age_s=None, segment_bytes_max=200_000)
        files = DiskFiles(directory)
        log = await Log.open(files, options, SystemClock())
        number = await log.put_schema(schema_of("users"))
        for key in range(1000):
            draft = Draft(Position(str(key)), TIME_US + key)
            draft.add(Op.INSERT, number, b"[%d]" % key, after=b'{"id":%d,"name":"%s"}' % (key, b"x" * 1000))
            await log.append([draft])
        await log.close()

    asyncio.run(append())
    files = DiskFiles(directory, make=False)
    segments = LogReader(files)._segments
    for segment in segments.entries[:-1]:
        for _ in survey(files, segments, segment):
            pass
    return directory


@pytest.mark.parametrize(
    ("conditions", "wanted"),
    [
        (Conditions(key="id", key_min=0, key_max=9), range(1, 11)),
        (Conditions(key="id", key_min=7, key_max=7), [8]),
        (Conditions(time_us_max=TIME_US + 9), range(1, 11)),
        (Conditions(ops=frozenset({Op.DELETE})), []),
    ],
)
def test_blocks_in_which_nothing_meets_the_conditions_are_not_read(tmp_path, monkeypatch, conditions, wanted):
    write_blocks(tmp_path)
    read, load = [], Segments.load
    monkeypatch.setattr(Segments, "load", lambda self, offset: read.append(offset) or load(self, offset))
    origin = FilesOrigin(str(tmp_path), "app")
    found = offsets(origin.batches(0, 1000, ["users"], conditions))
    assert set(wanted) <= set(found)
    if conditions.key is not None or not wanted:
        assert found == list(wanted)  # times are told of blocks alone
    segments = origin._reader._segments
    assert len(read) <= sum(len(segments.index(one)[0]) for one in segments.entries) / 3
    assert offsets(origin.batches(0, 1000, ["users"])) == list(range(1, 1001))


def test_a_key_of_another_column_is_not_bounded(tmp_path):
    origin = FilesOrigin(str(write(tmp_path, (1, 4))), "app")
    assert offsets(origin.batches(0, 4, ["users"], Conditions(key="name", key_min=0, key_max=1))) == [1, 2, 3, 4]
    assert offsets(origin.batches(0, 4, (), Conditions(key="id", key_min=1, key_max=2))) == [2, 3]


def test_cuts_lie_at_ends_of_commits(tmp_path):
    origin = FilesOrigin(str(write(tmp_path, (1, 2), (1, 3), (1, 4), (1, 1))), "app")
    assert origin.cuts(0, 10, changes=5) == [5, 10]
    assert origin.cuts(0, 10, changes=1) == [2, 5, 9, 10]


def test_cuts_by_bytes_are_as_exact_as_the_blocks_of_the_log(tmp_path):
    origin = FilesOrigin(str(write(tmp_path, *[(1, 5_000)] * 4)), "app")
    assert origin.cuts(0, 20_000, changes=100_000, bytes_max=1 << 30) == [20_000]
    assert origin.cuts(0, 20_000, changes=100_000, bytes_max=1) == [5_000, 10_000, 15_000, 20_000]


@pytest.mark.parametrize(
    ("start", "after"), [("earliest", 0), ("latest", 5), ("3", 3), ("2000-01-01", 0), ("2100-01-01T00:00:00Z", 5)]
)
def test_a_start_is_a_word_an_offset_or_a_time(tmp_path, start, after):
    assert TIME_US > 0
    origin = FilesOrigin(str(write(tmp_path, (1, 2), (1, 3))), "app")
    assert origin.place(start) == after


def test_a_start_that_is_none_is_named(tmp_path):
    origin = FilesOrigin(str(write(tmp_path, (1, 1))), "app")
    with pytest.raises(ConfigError, match="sometime"):
        origin.place("sometime")


def test_what_retention_removed_is_a_typed_error(tmp_path):
    origin = FilesOrigin(str(write(tmp_path, (1, 3), (1, 3), retention=4)), "app")
    assert origin.place("earliest") == 3  # of the first commit a part is gone
    with pytest.raises(BehindHorizonError):
        origin.cuts(0, 6, changes=1)
    with pytest.raises(BehindHorizonError):
        list(origin.batches(0, 6, ()))
