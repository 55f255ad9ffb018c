import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.source.sqlite.wal import (
    FRAME_HEADER,
    HEADER,
    Interior,
    Leaf,
    WalHeader,
    parse_header,
    parse_page,
    runs,
)

PAGE = 512
SALT = b"\x00\x00\x00\x07abcd"
OLD_SALT = b"\x00\x00\x00\x06wxyz"


def file_of(*frames, salt=SALT):
    """Return a log of (page, commits) frames, or (page, commits, salt)."""
    data = struct.pack(">IIII8s8x", 0x377F0682, 3007000, PAGE, 1, salt)
    for page, commits, *other in frames:
        data += struct.pack(">II8s8x", page, 9 if commits else 0, other[0] if other else salt) + bytes(PAGE)
    return data


def runs_of(data, after=0, through=1000):
    found = runs(lambda offset, size: data[offset : offset + size], parse_header(data), after, through)
    return [(run.pages, run.last) for run in found]


def test_the_header_gives_page_size_and_salt():
    header = parse_header(file_of())
    assert header == WalHeader(PAGE, SALT)
    assert header.offset(1) == HEADER
    assert header.offset(3) == HEADER + 2 * (FRAME_HEADER + PAGE)


@pytest.mark.parametrize(
    "data", [b"", b"x" * 31, bytes(32), b"SQLite format 3\x00" * 4], ids=["none", "cut", "zeros", "foreign"]
)
def test_what_is_no_log_has_no_header(data):
    assert parse_header(data) is None


def test_transactions_end_at_marked_frames():
    data = file_of((2, False), (3, True), (3, True), (4, False), (3, False), (4, True))
    assert runs_of(data) == [({2: 1, 3: 2}, 2), ({3: 3}, 3), ({3: 5, 4: 6}, 6)]
    assert runs_of(data, after=2) == [({3: 3}, 3), ({3: 5, 4: 6}, 6)]
    assert runs_of(data, after=2, through=5) == [({3: 3}, 3)]


def test_frames_without_a_mark_behind_them_are_not_a_transaction():
    assert runs_of(file_of((2, True), (3, False), (4, False))) == [({2: 1}, 1)]


def test_frames_of_an_older_log_end_the_search():
    assert runs_of(file_of((2, True), (3, True, OLD_SALT), (4, True))) == [({2: 1}, 1)]


def test_a_frame_that_is_still_being_written_is_not_read():
    data = file_of((2, True), (3, True))
    assert runs_of(data[:-1]) == [({2: 1}, 1)]


def test_long_logs_are_read_in_pieces():
    data = file_of(*((page, True) for page in range(2, 202)))
    assert [last for _, last in runs_of(data)] == list(range(1, 201))


def leaf_of(*cells):
    page = bytearray(PAGE)
    page[0] = 0x0D
    page[3:5] = len(cells).to_bytes(2, "big")
    end = PAGE
    for number, cell in enumerate(cells):
        end -= len(cell)
        page[end : end + len(cell)] = cell
        page[8 + 2 * number : 10 + 2 * number] = end.to_bytes(2, "big")
    return bytes(page)


def varint(value):
    if value >= 1 << 56:
        high = value >> 8
        return bytes(0x80 | high >> 7 * shift & 0x7F for shift in range(7, -1, -1)) + bytes([value & 0xFF])
    digits = [value & 0x7F]
    while value := value >> 7:
        digits.append(0x80 | value & 0x7F)
    return bytes(reversed(digits))


@given(st.integers(1, 2**62), st.integers(1, 2**40))
def test_the_last_row_of_a_leaf_is_its_newest(number, payload):
    page = leaf_of(varint(3) + varint(1) + b"abc", varint(payload) + varint(number))
    assert parse_page(page) == Leaf(number)


def test_the_right_child_of_an_interior_page_is_followed():
    page = bytearray(PAGE)
    page[0] = 0x05
    page[8:12] = (1234).to_bytes(4, "big")
    assert parse_page(bytes(page)) == Interior(1234)


def test_an_empty_leaf_says_nothing():
    assert parse_page(leaf_of()) is None


@given(st.binary(min_size=PAGE, max_size=PAGE))
def test_any_bytes_are_a_page_or_none(data):
    for kind in (0x0D, 0x05, 0x0A, 0x02, data[0]):
        found = parse_page(bytes([kind]) + data[1:])
        assert found is None or isinstance(found, Leaf | Interior)


@given(st.binary(max_size=2000))
def test_any_bytes_behind_a_header_give_transactions_or_none(data):
    for pages, _ in runs_of(file_of() + data):
        assert pages
