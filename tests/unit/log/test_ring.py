from hypothesis import given
from hypothesis import strategies as st

from log_samples import draft, rows_in, rows_of
from tailrace.log.batch import encode_drafts
from tailrace.log.ring import Ring
from tailrace.model.chunk import Chunk
from tailrace.model.number import Index, Offset


def fill(ring: Ring, counts: list[int]) -> list:
    """Add one chunk for each count, and return all rows."""
    drafts = [draft(number, count) for number, count in enumerate(counts)]
    first = 1
    for index, one in enumerate(drafts, 1):
        ring.add(Chunk(encode_drafts([one], Offset(first), Index(index)), {}), 100 * len(one))
        first += len(one)
    return rows_of(drafts)


@given(st.lists(st.integers(1, 12), min_size=1, max_size=150), st.integers(1, 500), st.integers(100, 30_000))
def test_the_newest_changes_are_there_within_the_bounds_and_unchanged(counts, changes_max, bytes_max):
    ring = Ring(changes_max, bytes_max)
    rows = fill(ring, counts)
    floor = ring.floor
    assert floor is not None
    assert len(ring) == len(rows) - floor + 1
    assert ring.size_bytes == 100 * len(ring)
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


def test_small_chunks_are_merged_behind_the_newest():
    ring = Ring(10_000, 10_000_000)
    fill(ring, [1] * 2100)
    chunks, offset = [], 1
    while (chunk := ring.find(offset)) is not None:
        chunks.append(len(chunk))
        offset = chunk.last + 1
    assert chunks[:2] == [1024, 1024]
    assert chunks[-1] == 1
    assert len(chunks) < 40


def test_an_empty_ring_holds_nothing():
    ring = Ring(10, 1000)
    assert ring.floor is None
    assert ring.find(Offset(1)) is None
    assert len(ring) == 0


def test_the_newest_chunk_stays_even_if_it_is_too_large():
    ring = Ring(2, 10)
    fill(ring, [1, 5])
    assert (ring.floor, len(ring)) == (2, 5)
