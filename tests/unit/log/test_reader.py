import pytest
from msgspec.structs import replace

from log_samples import SMALL, PlainLog, draft, rows_in, rows_of
from tailrace.log.reader import LogReader
from tailrace.log.segment import index_name
from tailrace.model.errors import BehindHorizonError, BeyondHeadError, CorruptSegmentError
from tailrace.model.number import Index, Offset
from tailrace.model.table import TableName, TableSchema
from tailrace.testing.files import MemoryFiles

ROTATING = replace(SMALL, segment_bytes_max=4000)


async def read_all(reader: LogReader, after: int = 0) -> list:
    rows = []
    while (chunk := await reader.read(Offset(after))) is not None:
        rows += [row for row in rows_in(chunk) if row[0] > after]
        after = chunk.last
    return rows


async def test_an_empty_directory_is_an_empty_log():
    reader = LogReader(MemoryFiles())
    assert (reader.head, reader.horizon) == (0, 1)
    assert await reader.read(Offset(0)) is None
    assert reader.segments() == []


async def test_it_follows_the_writer_over_new_segments_and_schemas():
    files = MemoryFiles()
    log = PlainLog(files, ROTATING)
    reader = LogReader(files)
    drafts, seen = [], []
    for number in range(1, 31):
        drafts.append(draft(number, 3))
        log.append(drafts[-1])
        if number == 20:
            log.schemas.put(TableSchema(TableName("app", "later"), 1, ()))
        if number % 4 == 0:
            seen += await read_all(reader, len(seen))
            assert seen == rows_of(drafts)
            assert reader.head == len(seen)
    assert len(reader.segments()) > 2
    assert len(reader.schemas()) == 2


@pytest.mark.parametrize("bytes_max", [1, 2500, 1 << 20])
@pytest.mark.parametrize("after", [0, 4, 31])
def test_runs_have_all_changes_that_follow_each_other(monkeypatch, bytes_max, after):
    monkeypatch.setattr("tailrace.log.reader._RUN_BYTES_MAX", bytes_max)
    files = MemoryFiles()
    log = PlainLog(files, ROTATING)
    drafts = [draft(number, 3) for number in range(1, 31)]
    for one in drafts:
        log.append(one)
    reader, seen, place = LogReader(files), [], after
    while (chunk := reader.load_run(Offset(place), Offset(90))) is not None:
        seen += [row for row in rows_in(chunk) if row[0] > place]
        place = chunk.last
    assert seen == rows_of(drafts)[after:]
    assert len(reader.segments()) > 2


def test_a_run_goes_no_further_than_is_wanted():
    files = MemoryFiles()
    log = PlainLog(files, replace(SMALL, segment_bytes_max=64 << 20))
    for number in range(1, 31):
        log.append(draft(number, 1000))
    reader = LogReader(files)
    assert 1500 <= reader.load_run(Offset(0), Offset(1500)).last < 30_000
    with pytest.raises(BeyondHeadError):
        reader.load_run(Offset(30_009), Offset(30_010))


async def test_it_shows_nothing_that_the_state_does_not_say():
    files = MemoryFiles()
    log = PlainLog(files)
    log.append(draft(1))
    state = files.bytes_of("state")
    log.append(draft(2))
    files.put("state", state)
    assert await read_all(LogReader(files)) == rows_of([draft(1)])


async def test_without_a_state_it_shows_what_is_whole():
    files = MemoryFiles()
    log = PlainLog(files, ROTATING)
    drafts = [draft(number, 3) for number in range(1, 12)]
    for one in drafts:
        log.append(one)
    files.remove("state")
    for index in range(1, 12):
        files.remove(index_name(Index(index)))
    assert await read_all(LogReader(files)) == rows_of(drafts)


async def test_it_changes_no_file():
    files = MemoryFiles()
    log = PlainLog(files, ROTATING)
    for number in range(1, 12):
        log.append(draft(number, 3))
    before = {name: files.bytes_of(name) for name in files.names()}
    operations = files.operations
    await read_all(LogReader(files))
    assert files.operations == operations
    assert {name: files.bytes_of(name) for name in files.names()} == before


async def test_offsets_outside_the_window_are_refused():
    files = MemoryFiles()
    log = PlainLog(files, replace(ROTATING, retention_changes=10))
    for number in range(1, 12):
        log.append(draft(number, 3))
    reader = LogReader(files)
    assert (reader.horizon, reader.head) == (24, 33)
    with pytest.raises(BehindHorizonError):
        await reader.read(Offset(22))
    with pytest.raises(BeyondHeadError):
        await reader.read(Offset(34))
    assert [row[0] for row in await read_all(reader, 23)] == list(range(24, 34))


async def test_a_segment_that_retention_removed_meanwhile_is_behind_the_horizon():
    files = MemoryFiles()
    log = PlainLog(files, ROTATING)
    for number in range(1, 31):
        log.append(draft(number, 3))
    reader = LogReader(files)
    first, second = reader.segments()[:2]
    log.writer.move_horizon(second.first_offset)
    files.remove(first.name)
    with pytest.raises(BehindHorizonError) as caught:
        await reader.read(Offset(0))
    assert caught.value.horizon == second.first_offset
    assert len(await read_all(reader, second.first_offset - 1)) == 90 - second.first_offset + 1


async def test_a_damaged_segment_is_named():
    files = MemoryFiles()
    log = PlainLog(files, ROTATING)
    for number in range(1, 31):
        log.append(draft(number, 3))
    reader = LogReader(files)
    name = reader.segments()[0].name
    data = bytearray(files.bytes_of(name))
    data[-9] ^= 1
    files.put(name, bytes(data))
    with pytest.raises(CorruptSegmentError) as caught:
        await read_all(reader)
    assert caught.value.segment == name
