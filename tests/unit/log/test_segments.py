import itertools

import pytest
from msgspec.structs import replace

from log_samples import SMALL, PlainLog, contents, draft, rows_in, rows_of
from tailrace.log.recover import examine
from tailrace.log.schemas import Schemas
from tailrace.log.segment import index_name, segment_name
from tailrace.log.segments import Segments
from tailrace.log.sparse import BLOCK_BYTES, SparseIndex
from tailrace.model.errors import CorruptSegmentError
from tailrace.model.number import Index, Offset
from tailrace.testing.files import MemoryFiles

WIDE = "w" * 20_000
DRAFTS = [draft(number, 4, WIDE) for number in range(1, 41)]


@pytest.fixture(scope="module")
def whole() -> MemoryFiles:
    """Return a log of 40 frames of some 60 kB, in segments of about a megabyte."""
    files = MemoryFiles()
    log = PlainLog(files, replace(SMALL, segment_bytes_max=1_000_000))
    for one in DRAFTS:
        log.append(one)
    return files


def segments_of(files: MemoryFiles) -> Segments:
    found = examine(files)
    schemas = Schemas(files)
    schemas.load()
    segments = Segments(files, schemas.known)
    segments.replace(found.segments, found.sparse, found.end)
    return segments


def test_every_change_is_found_in_a_block_that_begins_little_before_it(whole):
    segments = segments_of(whole)
    rows = rows_of(DRAFTS)
    for offset in range(1, len(rows) + 1):
        block = segments.find(Offset(offset))
        assert block.first_offset <= offset
        assert block.end - block.begin < BLOCK_BYTES + 100_000
        chunks = segments.load(Offset(offset))
        assert chunks[0].first == block.first_offset
        got = [row for chunk in chunks for row in rows_in(chunk)]
        assert got == rows[chunks[0].first - 1 : chunks[-1].last]
    assert len(segments.entries) == 3


@pytest.mark.parametrize(
    "spoil",
    [
        lambda files, name: files.remove(name),
        lambda files, name: files.put(name, b""),
        lambda files, name: files.put(name, b"x" * len(files.bytes_of(name))),
    ],
    ids=["missing", "empty", "damaged"],
)
def test_an_index_that_is_of_no_use_is_rebuilt(whole, spoil):
    files = whole.copy()
    for segment in segments_of(files).entries[:-1]:
        spoil(files, index_name(segment.first_index))
    assert contents(files) == rows_of(DRAFTS)


def test_an_index_that_misleads_is_thrown_away_and_rebuilt(whole):
    files = whole.copy()
    size = len(files.bytes_of(segment_name(Index(1))))
    misleading = SparseIndex()
    for _, header in segments_of(files).frames(segments_of(files).entries[0], 0)[:2]:
        misleading.add(header, 4000 + header.first_offset * BLOCK_BYTES)
    files.put(index_name(Index(1)), misleading.pack(Index(1), size))
    assert contents(files) == rows_of(DRAFTS)


def test_damage_in_an_old_segment_is_named_when_it_is_read_and_not_before(whole):
    files = whole.copy()
    name = segment_name(Index(1))
    data = bytearray(files.bytes_of(name))
    place = segments_of(files).frames(segments_of(files).entries[0], 1)[0][0]
    data[place + 1000] ^= 1
    files.put(name, bytes(data))
    segments = segments_of(files)
    assert segments.load(Offset(1))[0].first == 1
    with pytest.raises(CorruptSegmentError) as caught:
        segments.load(Offset(24))
    assert (caught.value.segment, caught.value.place) == (name, place)


def test_an_old_segment_that_is_cut_short_is_named(whole):
    files = whole.copy()
    name = segment_name(Index(1))
    files.put(name, files.bytes_of(name)[:-50])
    last = segments_of(files).entries[1].first_offset - 1
    with pytest.raises(CorruptSegmentError) as caught:
        segments_of(files).load(Offset(last))
    assert caught.value.segment == name


def test_a_change_of_a_schema_that_the_log_does_not_have_is_refused(whole):
    files = whole.copy()
    files.remove("schemas.jsonl")
    with pytest.raises(CorruptSegmentError, match="schema 1"):
        segments_of(files).load(Offset(1))


def test_nothing_beyond_the_synced_end_is_read(whole):
    segments = segments_of(whole)
    found = examine(whole)
    last = segments.entries[-1]
    frames = segments.frames(last, 0)
    segments.replace(found.segments, found.sparse, frames[-1][0])
    assert segments.load(frames[0][1].first_offset)[-1].last == frames[-1][1].first_offset - 1


def test_the_summaries_name_every_segment(whole):
    summaries = segments_of(whole).summaries()
    assert [summary.sealed for summary in summaries] == [True, True, False]
    assert summaries[0].first_offset == 1
    assert summaries[-1].last_offset == len(rows_of(DRAFTS))
    for one, following in itertools.pairwise(summaries):
        assert one.last_offset + 1 == following.first_offset
        assert one.first_time_us <= one.last_time_us
        assert one.size_bytes == len(whole.bytes_of(one.name))


def test_many_small_frames_come_as_one_chunk():
    files = MemoryFiles()
    log = PlainLog(files)
    drafts = [draft(number) for number in range(1, 101)]
    for one in drafts:
        log.append(one)
    chunks = segments_of(files).load(Offset(100))
    assert [(chunk.first, chunk.last) for chunk in chunks] == [(1, 100)]


def test_a_large_frame_comes_in_several_chunks():
    files = MemoryFiles()
    PlainLog(files).append(draft(1, 10_000))
    chunks = segments_of(files).load(Offset(9000))
    assert [len(chunk) for chunk in chunks] == [4096, 4096, 1808]


@pytest.mark.parametrize("through", [1, 100, 10**9])
@pytest.mark.parametrize("bytes_max", [350_000, 700_000, 10**9])
def test_a_run_goes_on_from_block_to_block_up_to_a_change_or_a_size(whole, through, bytes_max):
    segments = segments_of(whole)
    rows = rows_of(DRAFTS)
    through = min(through, len(rows))
    for offset in range(1, through + 1, 7):
        (chunks,) = segments.take_run(Offset(offset), Offset(through), bytes_max, list)
        got = [row for chunk in chunks for row in rows_in(chunk)]
        assert got == rows[chunks[0].first - 1 : chunks[-1].last]
        blocks = {block.first_offset: block for block in map(segments.find, (chunk.first for chunk in chunks))}
        assert min(blocks) == segments.find(Offset(offset)).first_offset
        assert max(blocks) <= through
        size = sum(block.end - block.begin for block in blocks.values())
        assert size <= bytes_max
        if chunks[-1].last < through:
            following = segments.find(Offset(chunks[-1].last + 1))
            assert size + following.end - following.begin > bytes_max


def test_a_run_has_no_block_that_is_larger_than_a_run_may_be(whole):
    assert segments_of(whole).take_run(Offset(1), Offset(9), 1000, list) is None
