"""Statistics of blocks: what they say is true, and nothing that a reader wants is ever passed over."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from log_samples import SCHEMA, SMALL, PlainLog, draft
from tailrace.log.files import File
from tailrace.log.reader import LogReader
from tailrace.log.recover import examine
from tailrace.log.segment import segment_name, statistics_name
from tailrace.log.segments import Segments
from tailrace.log.statistics import Hashes, Skipper, Statistics, Survey, survey
from tailrace.model.image import NO_KEY
from tailrace.model.number import Index, Offset, SchemaId
from tailrace.model.op import Op
from tailrace.model.wanted import AnyKey, KeyWanted, KeyWithin, OneOfKeys, Wanted
from tailrace.testing.files import MemoryFiles
from wanting import block_of, changes, passes, wanteds


def file_of(found: Survey) -> File:
    files = MemoryFiles()
    files.put("statistics", found.pack())
    return files.open("statistics")


def hashes_in(statistics: Statistics, file: File) -> Hashes:
    return lambda table: statistics.hashes(table, file)


@given(st.lists(st.lists(changes, min_size=1, max_size=6), min_size=1, max_size=8), wanteds, st.data())
def test_no_change_that_is_wanted_is_passed_over(blocks, wanted, data):
    made, first, found = [], 1, Survey(7)
    for block in blocks:
        made.append(found.add([block_of(block, first)]))
        first += len(block)
    file = file_of(found)
    statistics = Statistics.read(file, 7)
    assert statistics is not None
    assert list(statistics.blocks) == made
    rows = [change for block in blocks for change in block]
    offset = data.draw(st.integers(1, len(rows)))
    further = statistics.skip(Offset(offset), wanted, hashes_in(statistics, file))
    assert offset <= statistics.skip(Offset(offset), wanted) <= further <= len(rows) + 1
    assert not any(passes(wanted, rows[row - 1]) for row in range(offset, further))
    assert further == offset or further == len(rows) + 1 or further in {block.first for block in made}


@pytest.mark.parametrize(
    ("wanted", "may"),
    [
        ({1: AnyKey()}, True),
        ({2: AnyKey()}, False),
        ({1: OneOfKeys(frozenset({b"[7]"}))}, True),
        ({1: OneOfKeys(frozenset({b"[8]"}))}, False),
        ({1: OneOfKeys(frozenset({b"[5]"}))}, False),
        ({1: OneOfKeys(frozenset({b'["a"]', NO_KEY}))}, False),
        ({1: KeyWithin(8, 9)}, False),
        ({1: KeyWithin(7, 7)}, True),
        ({1: KeyWithin(-3, 4)}, True),
    ],
)
def test_a_block_is_told_by_its_tables_and_keys(wanted: dict[SchemaId, KeyWanted], may):
    found = Survey(7)
    block = found.add([block_of([(Op.INSERT, 1, b"[7]"), (Op.UPDATE, 1, b"[4]")], 1)])
    statistics = Statistics.read(file := file_of(found), 7)
    assert statistics is not None
    assert block.may_have(Wanted(wanted, frozenset({1, 2}), 2), hashes_in(statistics, file)) is may
    assert not block.may_have(Wanted(wanted, frozenset({3}), 2))
    assert block.may_have(Wanted(wanted, frozenset({3}), 0))


def test_a_block_says_which_commits_and_times_it_has():
    block = Survey(7).add([block_of([(Op.INSERT, 1, b"[7]")], 5), block_of([(Op.DELETE, 2, b"[1]")] * 2, 6)])
    assert (block.first, block.last, block.first_index, block.last_index) == (5, 7, 5, 6)
    assert (block.commit_time_us_min, block.commit_time_us_max) == (1005, 1006)
    assert [(table.schema, table.changes, table.ops) for table in block.tables] == [(1, 1, (1,)), (2, 2, (3,))]
    assert [(table.hashes_place, table.hashes_count) for table in block.tables] == [(0, 1), (4, 1)]


def test_bounds_of_keys_tell_without_their_hashes_and_hashes_what_lies_between():
    found = Survey(7)
    block = found.add([block_of([(Op.INSERT, 1, b"[%d]" % number) for number in (3, 5, 9)], 1)])
    seek = [Wanted({SchemaId(1): OneOfKeys(frozenset({b"[%d]" % key}))}, frozenset({1}), 1) for key in (2, 4, 5)]
    assert [block.may_have(wanted) for wanted in seek] == [False, True, True]
    statistics = Statistics.read(file := file_of(found), 7)
    assert statistics is not None
    assert [block.may_have(wanted, hashes_in(statistics, file)) for wanted in seek] == [
        False,
        False,
        True,
    ]


def test_hashes_that_are_damaged_or_cut_short_say_nothing():
    found = Survey(7)
    block = found.add([block_of([(Op.INSERT, 1, b"[3]"), (Op.INSERT, 1, b"[9]")], 1)])
    absent = Wanted({SchemaId(1): OneOfKeys(frozenset({b"[5]"}))}, frozenset({1}), 1)
    files, good = MemoryFiles(), found.pack()
    for bad in (good[:-1], good[:-8], good[:-1] + bytes([good[-1] ^ 1])):
        files.put("statistics", bad)
        statistics = Statistics.read(file := files.open("statistics"), 7)
        assert statistics is not None
        assert block.may_have(absent, hashes_in(statistics, file))


def test_of_too_many_keys_nothing_is_said():
    block = Survey(7).add([block_of([(Op.INSERT, 1, b"[%d]" % (2 * number)) for number in range(9000)], 1)])
    assert block.tables[0].hashes_count == 0
    assert block.may_have(Wanted({SchemaId(1): OneOfKeys(frozenset({b"[5]"}))}, frozenset({1}), 1), lambda _: None)
    assert not block.may_have(Wanted({SchemaId(1): KeyWithin(-5, -1)}, frozenset({1}), 1))


@pytest.fixture
def files() -> MemoryFiles:
    """Return a log of a sealed segment of five changes and the newest of one."""
    files = MemoryFiles()
    log = PlainLog(files, replace(SMALL, segment_bytes_max=1 << 20))
    for number in range(1, 6):
        log.append(draft(number))
    log.writer._options = replace(SMALL, segment_bytes_max=1)
    log.append(draft(6))
    log.writer.close()
    return files


def segments_of(files: MemoryFiles) -> Segments:
    found = examine(files)
    segments = Segments(files, {SchemaId(1): SCHEMA})
    segments.replace(found.segments, found.sparse, found.end)
    return segments


OTHER = Wanted({SchemaId(2): AnyKey()}, frozenset({1}), 2)


def test_a_survey_writes_what_is_found_and_does_so_once(files):
    segments = segments_of(files)
    segment = segments.entries[0]
    assert Skipper(files, segments).load(segment) is None
    list(survey(files, segments, segment))
    statistics = Skipper(files, segments).load(segment)
    assert statistics is not None
    assert [(block.first, block.last) for block in statistics.blocks] == [(1, 5)]
    operations = files.operations
    list(survey(files, segments, segment))
    assert files.operations == operations


def test_statistics_that_are_damaged_or_of_another_file_are_none(files):
    segments = segments_of(files)
    list(survey(files, segments, segments.entries[0]))
    good = files.bytes_of(statistics_name(Index(1)))
    damaged = [good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :] for place in range(30)]
    for bad in (b"", good[:10], good[:30], b"x" * 40, b"TRSTATS1" + good[8:], *damaged):
        files.put(statistics_name(Index(1)), bad)
        assert Skipper(files, segments).load(segments.entries[0]) is None
    other = Survey(segments.entries[0].identity + 1)
    other.add(segments.load(Offset(1)))
    files.put(statistics_name(Index(1)), other.pack())
    assert Skipper(files, segments).load(segments.entries[0]) is None


def test_a_reader_passes_over_a_sealed_segment_but_not_over_the_newest(files):
    reader = LogReader(files)
    assert reader.skip(Offset(0), OTHER) == 0
    segments = segments_of(files)
    list(survey(files, segments, segments.entries[0]))
    reader = LogReader(files)
    assert reader.skip(Offset(0), OTHER) == 5
    assert reader.skip(Offset(3), OTHER) == 5
    assert reader.skip(Offset(0), replace(OTHER, schemas={SchemaId(1): AnyKey()})) == 0
    chunk = asyncio.run(reader.read(Offset(5)))
    assert chunk is not None
    assert segment_name(Index(6)) in files.names()
