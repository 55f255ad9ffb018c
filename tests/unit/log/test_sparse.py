from hypothesis import given
from hypothesis import strategies as st

from tailrace.log.frame import FrameHeader
from tailrace.log.sparse import BLOCK_BYTES, SparseIndex
from tailrace.model.number import Index, Offset


def header(number: int, time_us: int = 0) -> FrameHeader:
    return FrameHeader(0, 0, 1, 1, Offset(number), Index(number), time_us)


def index_of(sizes: list[int]) -> SparseIndex:
    """Return the index of frames of one change each, of these sizes, appended one second apart."""
    sparse, place = SparseIndex(), 100
    for number, size in enumerate(sizes, 1):
        sparse.add(header(number, number * 1_000_000), place)
        place += size
    return sparse


sizes = st.lists(st.integers(1, BLOCK_BYTES), min_size=1, max_size=60)


@given(sizes)
def test_each_change_is_in_the_block_that_begins_last_before_it(frame_sizes):
    sparse = index_of(frame_sizes)
    begins, place = [], 100
    for number, size in enumerate(frame_sizes, 1):
        if not begins or place >= begins[-1][1] + BLOCK_BYTES:
            begins.append((number, place))
        block = sparse.block_of(Offset(number))
        assert block == len(begins) - 1
        assert (sparse.first_offset(block), sparse.place(block)) == begins[-1]
        assert sparse.block_at(place) == block
        place += size
    assert len(sparse) == len(begins)
    assert sparse.place(len(sparse)) is None


def test_lookups_by_place_and_time_find_the_block_before():
    sparse = index_of([BLOCK_BYTES] * 3)
    assert sparse.block_at(99) == -1
    assert sparse.block_at(100 + BLOCK_BYTES) == 1
    assert [sparse.block_before_time(second * 1_000_000) for second in (0, 1, 2, 9)] == [-1, -1, 0, 2]


@given(sizes)
def test_an_index_reads_back_as_it_was_packed(frame_sizes):
    sparse = index_of(frame_sizes)
    packed = sparse.pack(Index(1), 5000)
    again = SparseIndex.unpack(packed, Index(1), 5000)
    assert again is not None
    assert again.pack(Index(1), 5000) == packed


def test_an_index_of_another_segment_or_length_is_not_believed():
    packed = index_of([10]).pack(Index(1), 5000)
    assert SparseIndex.unpack(packed, Index(2), 5000) is None
    assert SparseIndex.unpack(packed, Index(1), 5001) is None
    assert SparseIndex.unpack(SparseIndex().pack(Index(1), 5000), Index(1), 5000) is None


def test_every_flipped_bit_and_every_cut_is_noticed():
    packed = index_of([BLOCK_BYTES] * 2).pack(Index(1), 5000)
    for bit in range(len(packed) * 8):
        damaged = bytearray(packed)
        damaged[bit // 8] ^= 1 << bit % 8
        assert SparseIndex.unpack(bytes(damaged), Index(1), 5000) is None
    for size in range(len(packed)):
        assert SparseIndex.unpack(packed[:size], Index(1), 5000) is None


def test_blocks_of_small_frames_are_read_four_at_once_and_others_alone():
    def index_of(changes: int) -> SparseIndex:
        sparse = SparseIndex()
        for number in range(10):
            header = FrameHeader(0, 0, changes, changes, Offset(1 + number * changes), Index(1 + number * changes), 0)
            sparse.add(header, number * BLOCK_BYTES)
        return sparse

    small, wide, large = index_of(250), index_of(10), index_of(1000)
    assert [small.worth_reading(block) for block in range(10)] == [(0, 4)] * 4 + [(4, 8)] * 4 + [(8, 9), (9, 10)]
    for other in (wide, large):
        assert [other.worth_reading(block) for block in range(10)] == [(block, block + 1) for block in range(10)]
