"""Facts about encoded events and cutting them."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from held import held_memory
from tailrace.delivery.encoded import Encoded
from tailrace.delivery.join import Joined


@pytest.fixture(params=["of_list", "of_array", "of_large_array", "of_sliced_array"])
def make(request):
    def of(events, offsets, last):
        match request.param:
            case "of_list":
                return Encoded.of_list(events, offsets, last)
            case "of_array":
                return Encoded.of_joined(Joined.of_array(pa.array(events, pa.binary())), offsets, last)
            case "of_large_array":
                return Encoded.of_joined(Joined.of_array(pa.array(events, pa.large_binary())), offsets, last)
            case _:
                padded = pa.array([b"before", *events, b"behind"], pa.binary())
                return Encoded.of_joined(Joined.of_array(padded.slice(1, len(events))), offsets, last)

    return of


def test_a_cut_begins_behind_what_was_seen(make):
    encoded = make([b"a", b"bb", b"ccc"], [3, 5, 9], 12)
    assert encoded.cut(0, 10, 100).data == b"abbccc"
    assert encoded.cut(3, 10, 100).data == b"bbccc"
    assert encoded.cut(4, 10, 100).data == b"bbccc"
    assert encoded.cut(9, 10, 100).data == b""


def test_a_cut_says_how_far_it_is_safe_to_move(make):
    encoded = make([b"a", b"bb", b"ccc"], [3, 5, 9], 12)
    assert encoded.cut(0, 1, 100).through == 4
    assert encoded.cut(0, 2, 100).through == 8
    assert encoded.cut(0, 3, 100).through == 12
    assert encoded.cut(9, 3, 100).through == 12


def test_a_cut_keeps_the_byte_limit_but_gives_one_event_at_least(make):
    encoded = make([b"a", b"bb", b"ccc"], [3, 5, 9], 12)
    assert encoded.cut(0, 10, 3).data == b"abb"
    assert encoded.cut(0, 10, 5).data == b"abb"
    assert encoded.cut(0, 10, 6).data == b"abbccc"
    assert encoded.cut(5, 10, 1).data == b"ccc"


def test_no_events_cut_to_nothing_and_move_to_the_end():
    piece = Encoded.of_list([], [], 12).cut(3, 10, 100)
    assert (piece.data, piece.count, piece.through) == (b"", 0, 12)


def test_events_can_be_picked_and_listed(make):
    encoded = make([b"a", b"bb", b"ccc", b"d"], range(1, 5), 4)
    assert encoded.pick([0, 2]).events() == [b"a", b"ccc"]
    assert encoded.pick(range(1, 3)).events() == [b"bb", b"ccc"]
    assert encoded.pick([0, 2]).cut(1, 10, 100).data == b"ccc"
    assert encoded.size_bytes >= 7


@given(
    st.lists(st.tuples(st.integers(1, 3), st.binary(max_size=9)), max_size=30),
    st.integers(1, 7),
    st.integers(1, 40),
    st.integers(0, 5),
)
def test_cutting_again_and_again_gives_every_event_once_in_order(steps, changes_max, bytes_max, behind):
    offsets, events, offset = [], [], 0
    for step, event in steps:
        offset += step
        offsets.append(offset)
        events.append(event)
    last = offset + behind
    encoded = Encoded.of_list(events, offsets, last)
    data, counts, after = b"", 0, 0
    while after < last:
        piece = encoded.cut(after, changes_max, bytes_max)
        assert piece.count <= changes_max
        assert piece.count <= 1 or len(piece.data) <= bytes_max
        assert piece.through > after
        assert not [offset for offset in offsets[counts + piece.count :] if offset <= piece.through]
        data, counts, after = data + piece.data, counts + piece.count, piece.through
    assert (data, counts) == (b"".join(events), len(events))


def test_feeds_that_cut_at_the_same_places_share_the_bytes():
    encoded = Encoded.of_list([b"a" * 100] * 100, range(1, 101), 100)
    for begin in range(0, 100, 10):
        assert encoded.cut(begin, 10, 10_000).data is encoded.cut(begin, 10, 10_000).data
    for begin in range(100):
        for count in (1, 7, 50):
            assert encoded.cut(begin, count, 10_000).data == b"a" * 100 * min(count, 100 - begin)
            # What is kept for others never takes more than the events themselves, nor more pieces than the bound.
            assert sum(map(len, encoded._cuts.values())) <= 10_000
            assert len(encoded._cuts) <= 32


def test_what_is_counted_is_what_is_held(make):
    """A slice holds the array of which it is a part."""
    encoded = make([b"a" * 100] * 100, range(1, 101), 100)
    for begin in range(0, 100, 3):
        encoded.cut(begin, 7, 10_000)
    assert held_memory(encoded) <= encoded.size_bytes


def test_of_a_slice_the_whole_array_is_counted():
    array = pa.array([b"a" * 100] * 1000, pa.binary())
    encoded = Encoded.of_joined(Joined.of_array(array.slice(3, 2)), [1, 2], 2)
    assert held_memory(encoded) <= encoded.size_bytes + 4 * 1000
    assert encoded.size_bytes > 100_000
