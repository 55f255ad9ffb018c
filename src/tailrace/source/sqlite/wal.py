"""The bytes of SQLite's write-ahead log and of its table pages, as far as we need them. Pure.

    file    header (32 bytes), then frames
    header  magic, version, page size, checkpoint number, salt (8 bytes), checksum (8 bytes); big-endian words
    frame   page number, size of the database in pages after a commit or 0, salt, checksum; then the page

Frames whose salt is not the header's are left over from before the log was restarted. See "WAL-mode file format" in
SQLite's documentation, and "The SQLite database file format" for pages.
"""

import struct
from collections.abc import Callable, Iterator
from functools import cache

from msgspec import Struct

__all__ = [
    "FRAME_HEADER",
    "HEADER",
    "FrameRun",
    "Interior",
    "Leaf",
    "WalHeader",
    "parse_header",
    "parse_page",
    "runs",
]

HEADER = 32
FRAME_HEADER = 24

_MAGICS = (0x377F0682, 0x377F0683)
_HEADER_WORDS = struct.Struct(">III4x8s")
_LEAF = 0x0D
_INTERIOR = 0x05
_READ_BYTES = 1 << 20

Read = Callable[[int, int], bytes]
"""Reads this many bytes from an offset of the file; fewer at its end."""


class WalHeader(Struct, frozen=True):
    """What the header says. The salt is another one each time the log is restarted."""

    page_size: int
    salt: bytes

    def offset(self, frame: int) -> int:
        """Return where a frame begins; frames count from 1."""
        return HEADER + (frame - 1) * (FRAME_HEADER + self.page_size)


class FrameRun(Struct, frozen=True):
    """The frames of one transaction: the last frame of each page it wrote, and its last frame.

    `size` is that of the database afterwards, in pages.
    """

    pages: dict[int, int]
    last: int
    size: int


class Leaf(Struct, frozen=True):
    """A page with rows: the number of its last one."""

    last: int


class Interior(Struct, frozen=True):
    """A page with pages below it: the rightmost of them."""

    right: int


def parse_header(data: bytes) -> WalHeader | None:
    """Return the header, None when there is none (an empty or foreign file)."""
    if len(data) < HEADER:
        return None
    magic, _, page_size, salt = _HEADER_WORDS.unpack_from(data)
    return WalHeader(page_size, salt) if magic in _MAGICS and page_size >= 512 else None


def runs(read: Read, header: WalHeader, after: int, through: int) -> Iterator[FrameRun]:
    """Yield the whole transactions in the frames after one and through another, up to the first of another salt."""
    frame_words = _frame_words(header.page_size)
    at_once = max(1, _READ_BYTES // frame_words.size)
    wanted = header.salt
    pages: dict[int, int] = {}
    frame = after
    while frame < through:
        data = read(header.offset(frame + 1), frame_words.size * min(at_once, through - frame))
        whole = len(data) // frame_words.size * frame_words.size
        if not whole:
            return
        for page, commit, salt in frame_words.iter_unpack(data[:whole] if whole < len(data) else data):
            if salt != wanted or page == 0:
                return
            frame += 1
            pages[page] = frame
            if commit:
                yield FrameRun(pages, frame, commit)
                pages = {}


@cache
def _frame_words(page_size: int) -> struct.Struct:
    return struct.Struct(f">II8s8x{page_size}x")


def parse_page(page: bytes) -> Leaf | Interior | None:
    """Return what a page of a table says about its right edge; None when it is no such page, or empty."""
    if len(page) < 512:
        return None
    kind = page[0]
    if kind == _INTERIOR:
        return Interior(int.from_bytes(page[8:12], "big"))
    cells = int.from_bytes(page[3:5], "big")
    if kind != _LEAF or cells == 0:
        return None
    place = 8 + 2 * (cells - 1)
    cell = int.from_bytes(page[place : place + 2], "big")
    return Leaf(_row_number(page[cell : cell + 18] + bytes(18))) if place < cell < len(page) else None


def _row_number(cell: bytes) -> int:
    """Return the row number of a cell: the second of the two varints that it begins with."""
    place = 0
    while cell[place] >= 0x80 and place < 8:
        place += 1
    value = 0
    for byte in cell[place + 1 : place + 9]:
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value
    return value << 8 | cell[place + 9]
