import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.log.frame import FRAME_HEADER_BYTES, BadFrameError, find_frame, frame_header, pack_frame, scan, walk
from tailrace.model.number import Index, Offset

payloads = st.binary(max_size=40).map(lambda data: data + bytes(-len(data) % 8))


def frames(*payloads_in_order: bytes, first_offset: int = 1, first_index: int = 1) -> bytes:
    """Return frames of two changes and one commit each."""
    data = b""
    for number, payload in enumerate(payloads_in_order):
        head = pack_frame(
            payload,
            change_count=2,
            commit_count=1,
            first_offset=Offset(first_offset + 2 * number),
            first_index=Index(first_index + number),
            append_time_us=1000 + number,
        )
        data += head + payload
    return data


@given(payloads, st.integers(1, 2**62), st.integers(1, 2**62), st.integers(0, 2**62))
def test_a_header_reads_back_as_it_was_packed(payload, first_offset, first_index, time_us):
    packed = pack_frame(
        payload,
        change_count=7,
        commit_count=3,
        first_offset=first_offset,
        first_index=first_index,
        append_time_us=time_us,
    )
    header = frame_header(packed + payload, 0, 0)
    assert len(packed) == FRAME_HEADER_BYTES
    assert (header.first_offset, header.first_index, header.append_time_us) == (first_offset, first_index, time_us)
    assert (header.last_offset, header.last_index) == (first_offset + 6, first_index + 2)
    assert header.frame_bytes == FRAME_HEADER_BYTES + len(payload)


@given(st.lists(payloads, max_size=6))
def test_walking_gives_every_frame_in_order(given_payloads):
    data = frames(*given_payloads)
    walked = [(at, header.first_offset) for at, header in walk(data, 100)]
    assert [offset for _, offset in walked] == [1 + 2 * number for number in range(len(given_payloads))]
    scanned = [
        (place, header.first_offset) for place, header in scan(lambda at, size: data[at : at + size], 0, len(data))
    ]
    assert scanned == walked


@given(st.binary(max_size=200))
def test_any_bytes_are_frames_or_an_error(data):
    walked = walk(data, 0)
    while True:
        try:
            next(walked)
        except StopIteration:
            assert not data
            break
        except BadFrameError:
            break


def test_every_flipped_bit_is_noticed():
    data = frames(b"payload1", b"payload2")
    for bit in range(len(data) * 8):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(BadFrameError):
            list(walk(damaged, 0))


def test_a_frame_that_skips_an_offset_or_index_is_refused():
    for gap in ({"first_offset": 4, "first_index": 2}, {"first_offset": 3, "first_index": 3}):
        data = frames(b"payload1") + frames(b"payload2", **gap)
        with pytest.raises(BadFrameError, match="does not follow"):
            list(walk(data, 0))
        with pytest.raises(BadFrameError, match="does not follow"):
            list(scan(lambda at, size, data=data: data[at : at + size], 0, len(data)))


def test_scanning_reads_past_payloads_that_are_larger_than_its_window():
    data = frames(bytes(200_000), bytes(8), bytes(300_000), bytes(16))
    reads = []

    def read_at(place, size):
        reads.append(size)
        return data[place : place + size]

    assert [header.payload_bytes for _, header in scan(read_at, 0, len(data))] == [200_000, 8, 300_000, 16]
    assert sum(reads) < len(data) / 2


def test_a_whole_frame_is_found_behind_damage_and_none_in_a_torn_one():
    good = frames(b"payload1", b"payload2", b"payload3")
    size = len(good) // 3
    assert find_frame(b"x" * 13 + good, 0) == 13
    assert find_frame(good, 1) == size
    for cut in range(2 * size + 1, 3 * size):
        assert find_frame(good[:cut], size + 1) is None
    assert find_frame(bytes(1000), 0) is None
