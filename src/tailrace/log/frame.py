"""Frames: the bytes of whole commits, or of one part of a commit. Pure. The layout is drawn in docs/log-format.md.

0      4     8            12             16       20       24            32           40              48
magic  crc   payload crc  payload bytes  changes  commits  first offset  first index  append time µs  payload …
"""

import struct
from collections.abc import Callable, Iterator

from isal import isal_zlib
from msgspec import Struct

from tailrace.model.number import Index, Offset

__all__ = [
    "FRAME_HEADER_BYTES",
    "BadFrameError",
    "FrameHeader",
    "find_frame",
    "frame_header",
    "pack_frame",
    "scan",
    "seal_frame",
    "walk",
]

_MAGIC = b"TRFR"
_LAYOUT = struct.Struct("<4sIIIIIQQQ")
FRAME_HEADER_BYTES = _LAYOUT.size
_ALIGNMENT = 8
_SCAN_BYTES = 64 * 1024


class BadFrameError(Exception):
    """The bytes at `place` are no whole frame. The caller knows which file it is and whether that may be."""

    def __init__(self, place: int, reason: str) -> None:
        super().__init__(f"byte {place}: {reason}")
        self.place = place
        self.reason = reason


class FrameHeader(Struct, frozen=True, gc=False):
    """What a frame says of itself. `frame_bytes` is its whole length, header and payload.

    A frame that ends no commit holds a part of one, which continues in the next frame.
    """

    payload_crc: int
    payload_bytes: int
    change_count: int
    commit_count: int
    first_offset: Offset
    first_index: Index
    append_time_us: int

    @property
    def frame_bytes(self) -> int:
        """Return the length of the whole frame."""
        return FRAME_HEADER_BYTES + self.payload_bytes

    @property
    def last_offset(self) -> Offset:
        """Return the offset of its last change."""
        return Offset(self.first_offset + self.change_count - 1)

    @property
    def continues(self) -> bool:
        """Return whether its commit goes on in the next frame."""
        return not self.commit_count

    @property
    def last_index(self) -> Index:
        """Return the index of the last commit that ends in it; the one before its own where that continues."""
        return Index(self.first_index + self.commit_count - 1)


def seal_frame(
    payload: bytes | memoryview,
    *,
    change_count: int,
    commit_count: int,
    first_offset: Offset,
    first_index: Index,
    append_time_us: int,
) -> tuple[FrameHeader, bytes]:
    """Return the header of the frame with this payload, whose length must be a multiple of 8, and its bytes."""
    size, crc = len(payload), isal_zlib.crc32(payload)
    assert size % _ALIGNMENT == 0
    header = FrameHeader(crc, size, change_count, commit_count, first_offset, first_index, append_time_us)
    rest = _LAYOUT.pack(_MAGIC, 0, crc, size, change_count, commit_count, first_offset, first_index, append_time_us)[8:]
    return header, _MAGIC + isal_zlib.crc32(rest).to_bytes(4, "little") + rest


def pack_frame(
    payload: bytes | memoryview,
    *,
    change_count: int,
    commit_count: int,
    first_offset: Offset,
    first_index: Index,
    append_time_us: int,
) -> bytes:
    """Return the bytes alone."""
    return seal_frame(
        payload,
        change_count=change_count,
        commit_count=commit_count,
        first_offset=first_offset,
        first_index=first_index,
        append_time_us=append_time_us,
    )[1]


def frame_header(data: bytes | memoryview, at: int, place: int) -> FrameHeader:
    """Return the frame header that begins `at` in `data`. `place` is where that is in the file, for the error.

    Raises:
        BadFrameError: It is cut short, or not a frame header.
    """
    if len(data) - at < FRAME_HEADER_BYTES:
        raise BadFrameError(place, "the frame's header is cut short")
    magic, crc, payload_crc, size, changes, commits, offset, index, time_us = _LAYOUT.unpack_from(data, at)
    if magic != _MAGIC:
        raise BadFrameError(place, "no frame begins here")
    if isal_zlib.crc32(memoryview(data)[at + 8 : at + FRAME_HEADER_BYTES]) != crc:
        raise BadFrameError(place, "the frame's header does not match its checksum")
    return FrameHeader(payload_crc, size, changes, commits, offset, index, time_us)


def walk(data: bytes | memoryview, place: int) -> Iterator[tuple[int, FrameHeader]]:
    """Yield where in `data` each frame begins, and its header, to the end of `data`, which is at `place` in the file.

    All checksums are checked, and that frames are dense in offset and index.

    Raises:
        BadFrameError: The next bytes are not the next frame. What was yielded before is good.
    """
    view = memoryview(data)
    at, size = 0, len(view)
    expected: tuple[int, int] | None = None
    crc32, unpack = isal_zlib.crc32, _LAYOUT.unpack_from  # the loop is most of what small frames cost
    while at < size:
        begin = at + FRAME_HEADER_BYTES
        if begin > size:
            raise BadFrameError(place + at, "the frame's header is cut short")
        magic, crc, payload_crc, payload_bytes, changes, commits, offset, index, time_us = unpack(view, at)
        if magic != _MAGIC:
            raise BadFrameError(place + at, "no frame begins here")
        if crc32(view[at + 8 : begin]) != crc:
            raise BadFrameError(place + at, "the frame's header does not match its checksum")
        end = begin + payload_bytes
        if end > size:
            raise BadFrameError(place + at, "the frame is cut short")
        if crc32(view[begin:end]) != payload_crc:
            raise BadFrameError(place + at, "the frame's payload does not match its checksum")
        if expected is not None and expected != (offset, index):
            raise BadFrameError(place + at, "the frame does not follow the one before it")
        yield at, FrameHeader(payload_crc, payload_bytes, changes, commits, offset, index, time_us)
        expected = (offset + changes, index + commits)
        at = end


def scan(read_at: Callable[[int, int], bytes], begin: int, end: int) -> Iterator[tuple[int, FrameHeader]]:
    """Yield place and header of each frame between two bytes of a file, without reading payloads that are large.

    Raises:
        BadFrameError: The next bytes are not the next frame's header, or it does not end where it should.
    """
    place = window_begin = begin
    window = b""
    previous: FrameHeader | None = None
    while place < end:
        if place + FRAME_HEADER_BYTES > window_begin + len(window):
            window_begin, window = place, read_at(place, min(_SCAN_BYTES, end - place))
        header = frame_header(window, place - window_begin, place)
        _check_order(previous, header, place)
        if place + header.frame_bytes > end:
            raise BadFrameError(place, "the frame is cut short")
        yield place, header
        previous = header
        place += header.frame_bytes


def _check_order(previous: FrameHeader | None, header: FrameHeader, place: int) -> None:
    if previous and (header.first_offset, header.first_index) != (previous.last_offset + 1, previous.last_index + 1):
        raise BadFrameError(place, "the frame does not follow the one before it")


def find_frame(data: bytes | memoryview, begin: int) -> int | None:
    """Return where the first whole good frame at or behind `begin` begins in `data`; None where there is none.

    Tells a torn tail, behind which there is nothing, from damage in the middle.
    """
    view = memoryview(data)
    whole = bytes(view)
    at = whole.find(_MAGIC, begin)
    while at >= 0:
        try:
            header = frame_header(view, at, at)
            payload = view[at + FRAME_HEADER_BYTES : at + header.frame_bytes]
            if len(payload) == header.payload_bytes and isal_zlib.crc32(payload) == header.payload_crc:
                return at
        except BadFrameError:
            pass
        at = whole.find(_MAGIC, at + 1)
    return None
