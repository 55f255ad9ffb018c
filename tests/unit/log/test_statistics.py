"""Statistics of blocks: what they say is true, and nothing that a reader wants is ever passed over."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from log_samples import SCHEMA, SMALL, PlainLog, draft
from tailrace.log.batch import encode_drafts
from tailrace.log.reader import LogReader
from tailrace.log.recover import examine
from tailrace.log.segment import segment_name, statistics_name
from tailrace.log.segments import Segments
from tailrace.log.statistics import Skipper, Statistics, block_statistics, survey
from tailrace.model.chunk import Chunk
from tailrace.model.commit import Draft
from tailrace.model.image import NO_KEY
from tailrace.model.number import Index, Offset, Position, SchemaId
from tailrace.model.op import Op
from tailrace.model.wanted import AnyKey, KeyWanted, KeyWithin, OneOfKeys, Wanted
from tailrace.testing.files import MemoryFiles

integers = st.integers(-50, 50).map(lambda number: b"[%d]" % number)
keys = integers | st.sampled_from([NO_KEY, b'["a"]', b"[1,2]"])
changes = st.tuples(st.sampled_from(Op), st.integers(1, 4), keys)
wanted_keys = (
    st.just(AnyKey())
    | st.frozensets(keys, max_size=2).map(OneOfKeys)
    | st.tuples(st.integers(-60, 60), st.integers(0, 20)).map(lambda two: KeyWithin(two[0], two[0] + two[1]))
)
wanteds = st.builds(
    Wanted,
    st.dictionaries(st.integers(1, 4), wanted_keys, max_size=3),
    st.frozensets(st.sampled_from(list(map(int, Op)))),
    st.integers(3, 4),
)


def block_of(block: list[tuple[Op, int, bytes]], first: int) -> Chunk:
    made = Draft(Position("p"), 1000 + first)
    for op, schema, key in block:
        made.add(op, SchemaId(schema), key, after=b"{}")
    return Chunk(encode_drafts([made], Offset(first), Index(first)), {})


def passes(wanted: Wanted, change: tuple[Op, int, bytes]) -> bool:
    """Tell whether a change is wanted, looked at by itself. A key that is no integer may lie between any two."""
    op, schema, key = change
    if schema > wanted.known:
        return True
    if schema not in wanted.schemas or op not in wanted.ops:
        return False
    match wanted.schemas[schema]:
        case AnyKey():
            return True
        case OneOfKeys(chosen):
            return key in chosen
        case KeyWithin(lower, upper):
            return not key[1:-1].lstrip(b"-").isdigit() or lower <= int(key[1:-1]) <= upper


@given(st.lists(st.lists(changes, min_size=1, max_size=6), min_size=1, max_size=8), wanteds, st.data())
def test_no_change_that_is_wanted_is_passed_over(blocks, wanted, data):
    made, first = [], 1
    for block in blocks:
        made.append(block_statistics([block_of(block, first)]))
        first += len(block)
    statistics = Statistics.unpack(Statistics(made, 0).pack(7), 7)
    assert statistics is not None
    assert list(statistics.blocks) == made
    rows = [change for block in blocks for change in block]
    offset = data.draw(st.integers(1, len(rows)))
    further = statistics.skip(Offset(offset), wanted)
    assert offset <= further <= len(rows) + 1
    assert not any(passes(wanted, rows[row - 1]) for row in range(offset, further))
    assert further == offset or further == len(rows) + 1 or further in {block.first for block in made}


@pytest.mark.parametrize(
    ("wanted", "may"),
    [
        ({1: AnyKey()}, True),
        ({2: AnyKey()}, False),
        ({1: OneOfKeys(frozenset({b"[7]"}))}, True),
        ({1: OneOfKeys(frozenset({b"[8]"}))}, False),
        ({1: KeyWithin(8, 9)}, False),
        ({1: KeyWithin(7, 7)}, True),
        ({1: KeyWithin(-3, 4)}, True),
    ],
)
def test_a_block_is_told_by_its_tables_and_keys(wanted: dict[SchemaId, KeyWanted], may):
    block = block_statistics([block_of([(Op.INSERT, 1, b"[7]"), (Op.UPDATE, 1, b"[4]")], 1)])
    assert block.may_have(Wanted(wanted, frozenset({1, 2}), 2)) is may
    assert not block.may_have(Wanted(wanted, frozenset({3}), 2))
    assert block.may_have(Wanted(wanted, frozenset({3}), 0))


def test_a_block_says_which_commits_and_times_it_has():
    block = block_statistics([block_of([(Op.INSERT, 1, b"[7]")], 5), block_of([(Op.DELETE, 2, b"[1]")] * 2, 6)])
    assert (block.first, block.last, block.first_index, block.last_index) == (5, 7, 5, 6)
    assert (block.commit_time_us_min, block.commit_time_us_max) == (1005, 1006)
    assert [(table.schema, table.changes, table.ops) for table in block.tables] == [(1, 1, (1,)), (2, 2, (3,))]
    assert block.tables[1].hashes == block_statistics([block_of([(Op.INSERT, 2, b"[1]")], 1)]).tables[0].hashes


def test_of_too_many_keys_nothing_is_said():
    block = block_statistics([block_of([(Op.INSERT, 1, b"[%d]" % number) for number in range(9000)], 1)])
    assert block.tables[0].hashes == b""
    assert block.may_have(Wanted({SchemaId(1): OneOfKeys(frozenset({b"[-5]"}))}, frozenset({1}), 1))
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
    for bad in (b"", good[:-1], good[:20] + bytes([good[20] ^ 1]) + good[21:], b"x" * 40):
        files.put(statistics_name(Index(1)), bad)
        assert Skipper(files, segments).load(segments.entries[0]) is None
    identity = segments.entries[0].identity
    blocks = Statistics.unpack(good, identity)
    assert blocks is not None
    files.put(statistics_name(Index(1)), blocks.pack(identity + 1))
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
