from hypothesis import given
from hypothesis import strategies as st

from held import held_memory
from log_samples import draft
from tailrace.log.batch import encode_drafts
from tailrace.log.cache import BlockCache
from tailrace.model.chunk import Chunk
from tailrace.model.number import Index, Offset


def block(first: int, *counts: int, note: str = "n") -> list[Chunk]:
    chunks = []
    for count in counts:
        chunks.append(Chunk(encode_drafts([draft(0, count, note)], Offset(first), Index(1)), {}))
        first += count
    return chunks


TEN_BYTES = block(1, 10)[0].held_bytes
"""What a block of ten changes holds."""


def test_a_block_is_found_by_any_offset_in_it_and_gives_the_chunk_that_holds_it():
    cache = BlockCache(1 << 20)
    chunks = block(10, 3, 4)
    cache.put(chunks)
    assert [cache.find(Offset(offset)) for offset in (9, 17)] == [None, None]
    assert [cache.find(Offset(offset)) for offset in range(10, 17)] == [chunks[0]] * 3 + [chunks[1]] * 4
    assert [cache.last_of(Offset(offset)) for offset in (9, 10, 16, 17)] == [None, 16, 16, None]


def test_the_blocks_used_last_stay_within_the_bound():
    cache = BlockCache(3 * TEN_BYTES)
    for first in (1, 11, 21):
        cache.put(block(first, 10))
    assert cache.find(Offset(5)) is not None
    cache.put(block(31, 10))
    assert [cache.find(Offset(offset)) is not None for offset in (1, 11, 21, 31)] == [True, False, True, True]
    assert cache.size_bytes == 3 * TEN_BYTES


def test_a_longer_reading_of_a_block_takes_the_place_of_the_shorter():
    cache = BlockCache(1 << 20)
    cache.put(block(1, 2))
    cache.put(block(1, 10))
    assert cache.find(Offset(5)) is not None
    assert cache.size_bytes == TEN_BYTES


def test_the_block_put_last_stays_however_large():
    cache = BlockCache(TEN_BYTES)
    cache.put(block(1, 2))
    cache.put(block(3, 2, note="x" * 100_000))
    assert cache.find(Offset(3)) is not None
    assert cache.find(Offset(1)) is None


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(1, 40)), max_size=60))
def test_the_bound_holds_and_what_is_found_is_right(puts):
    cache = BlockCache(8 * TEN_BYTES)
    for number, size in puts:
        cache.put(block(number * 10 + 1, 10, note="n" * size * 20))
        assert cache.size_bytes <= 8 * TEN_BYTES
        found = cache.find(Offset(number * 10 + 4))
        assert found is not None
        assert found.first == number * 10 + 1


def test_what_is_counted_is_what_is_held():
    cache = BlockCache(1 << 19)
    for number in range(0, 200, 4):
        cache.put(block(number * 100 + 1, 60, 40, note="x" * number))
        assert held_memory(cache) <= cache.size_bytes <= 1 << 19


def test_a_block_takes_the_place_of_all_that_it_has_changes_in_common_with():
    cache = BlockCache(1 << 20)
    for first in (1, 11, 21, 31):
        cache.put(block(first, 10))
    whole = block(5, 20)
    cache.put(whole)
    assert [cache.find(Offset(offset)) for offset in (4, 5, 24, 25)] == [None, whole[0], whole[0], None]
    assert cache.find(Offset(31)) is not None
    assert cache.size_bytes == TEN_BYTES + whole[0].held_bytes
