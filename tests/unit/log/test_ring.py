import pytest
from hypothesis import given
from hypothesis import strategies as st

from held import held_memory
from log_samples import draft, rows_in, rows_of
from tailrace.log.batch import encode_drafts, pieces
from tailrace.log.ring import Ring
from tailrace.model.chunk import Chunk
from tailrace.model.number import Index, Offset


def fill(ring: Ring, counts: list[int], note: str = "n") -> list:
    """Add one chunk for each count, and return all rows."""
    drafts = [draft(number, count, note) for number, count in enumerate(counts)]
    first = 1
    for index, one in enumerate(drafts, 1):
        ring.add(Chunk(encode_drafts([one], Offset(first), Index(index)), {}))
        first += len(one)
    return rows_of(drafts)


@given(st.lists(st.integers(1, 12), min_size=1, max_size=150), st.integers(1, 500), st.integers(100, 600_000))
def test_the_newest_changes_are_there_within_the_bounds_and_unchanged(counts, changes_max, bytes_max):
    ring = Ring(changes_max, bytes_max)
    rows = fill(ring, counts)
    floor = ring.floor
    assert floor is not None
    assert len(ring) == len(rows) - floor + 1
    assert held_memory(ring) <= ring.size_bytes
    fits = len(ring) <= changes_max and ring.size_bytes <= bytes_max
    assert fits or ring.find(floor) is ring.find(len(rows)), (
        "only a chunk that is too large alone may exceed the bounds"
    )
    seen, offset = [], floor
    while (chunk := ring.find(offset)) is not None:
        assert chunk.first == offset
        seen += rows_in(chunk)
        offset = chunk.last + 1
    assert seen == rows[floor - 1 :]
    assert ring.find(floor - 1) is None


def counts_in(ring: Ring) -> list[int]:
    """Return how many changes each chunk has."""
    counts, offset = [], ring.floor
    while (chunk := ring.find(offset)) is not None:
        counts.append(len(chunk))
        offset = chunk.last + 1
    return counts


def test_small_chunks_are_merged_behind_the_newest():
    ring = Ring(10_000, 10_000_000)
    fill(ring, [1] * 2100)
    counts = counts_in(ring)
    assert counts[:2] == [1024, 1024]
    assert counts[-1] == 1
    assert len(counts) < 70


def test_single_changes_that_a_reader_is_far_behind_are_in_chunks_as_large_as_those_of_groups():
    ring = Ring(65_536, 1 << 26)
    fill(ring, [1] * 34_000)
    counts = counts_in(ring)
    assert counts[0] == 4096
    assert sum(count for count in counts if count >= 1024) > 31_000


@pytest.mark.parametrize("note_bytes", [2_000, 20_000])
def test_as_many_large_changes_are_merged_as_a_chunk_should_have(note_bytes):
    ring = Ring(65_536, 1 << 26)
    fill(ring, [1] * 2_000, "x" * note_bytes)
    counts = counts_in(ring)
    fitting = (1 << 20) // (note_bytes + 400)
    assert fitting // 2 <= counts[0] <= (1 << 20) // note_bytes
    assert len(counts) < 1100 // min(fitting, 32) + 2 * 64


def test_small_chunks_behind_large_ones_are_merged():
    ring = Ring(1 << 20, 1 << 28)
    fill(ring, [4096] * 40 + [1] * 300)
    counts = counts_in(ring)
    assert counts[:40] == [4096] * 40
    assert 32 in counts
    assert len(counts) < 40 + 70


def test_an_empty_ring_holds_nothing():
    ring = Ring(10, 1000)
    assert ring.floor is None
    assert ring.find(Offset(1)) is None
    assert len(ring) == 0


def test_the_newest_chunk_stays_even_if_it_is_too_large():
    ring = Ring(2, 10)
    fill(ring, [1, 5])
    assert (ring.floor, len(ring)) == (2, 5)


@pytest.mark.parametrize(
    ("count", "note_bytes"), [(1, 10), (40, 250), (40, 25), (4096, 250)], ids=["single", "wide", "narrow", "large"]
)
def test_what_is_counted_is_what_is_held(count, note_bytes):
    """Also behind the bounds, where merged chunks are dropped."""
    ring = Ring(1000, 1 << 20)
    fill(ring, [count] * max(4, 2500 // count), "x" * note_bytes)
    assert ring.floor > 1
    assert ring.size_bytes <= max(1 << 20, 4096 * (note_bytes + 150))
    assert held_memory(ring) <= ring.size_bytes


@pytest.mark.parametrize(
    ("bytes_max", "floor"), [(1 << 24, 1), (2 << 20, 3704), (100, 7404)], ids=["all fit", "some fit", "none fits"]
)
def test_parts_of_a_large_frame_do_not_hold_the_frame(bytes_max, floor):
    ring = Ring(65536, bytes_max)
    fill(ring, [3])
    batch = encode_drafts([draft(1, 10_000, "x" * 300)], Offset(4), Index(2))
    ring.add_parts(pieces(batch, batch.nbytes), {})
    assert ring.floor == floor
    assert held_memory(ring) <= ring.size_bytes < batch.nbytes + (1 << 16)
    offset = max(4, floor)
    while (chunk := ring.find(offset)) is not None:
        assert chunk.batch == batch.slice(offset - 4, len(chunk))
        offset = chunk.last + 1
    assert offset == 10_004
