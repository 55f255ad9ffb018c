"""The bytes of SQLite's write-ahead log and of its table pages, as far as we need them. Pure.

    file    header (32 bytes), then frames
    header  magic, version, page size, checkpoint number, salt (8 bytes), checksum (8 bytes); big-endian words
    frame   page number, size of the database in pages after a commit or 0, salt, checksum; then the page

Frames whose salt is not the header's are left over from before the log was started anew. See "WAL-mode file format" in
SQLite's documentation, and "The SQLite database file format" for pages.
"""

import struct
from collections.abc import Callable, Iterator

from msgspec import Struct

__all__ = [
    "FRAME_HEADER",
    "HEADER",
    "Frame",
    "Interior",
    "Leaf",
    "Run",
    "WalHeader",
    "parse_frame",
    "parse_header",
    "parse_page",
    "runs",
]

HEADER = 32
FRAME_HEADER = 24

_MAGICS = (0x377F0682, 0x377F0683)
_HEADER_WORDS = struct.Struct(">III4x8s")
_FRAME_WORDS = struct.Struct(">II8s")
_LEAF = 0x0D
_INTERIOR = 0x05
_FRAMES_AT_ONCE = 64

Read = Callable[[int, int], bytes]
"""Reads so many bytes from an offset of the file; fewer at its end."""


class WalHeader(Struct, frozen=True):
    """What the header says. The first half of the salt grows by one each time the log is started anew."""

    page_size: int
    salt: bytes

    @property
    def generation(self) -> int:
        """Return the first half of the salt."""
        return int.from_bytes(self.salt[:4], "big")

    def offset(self, frame: int) -> int:
        """Return where a frame begins; frames count from 1."""
        return HEADER + (frame - 1) * (FRAME_HEADER + self.page_size)


class Frame(Struct, frozen=True):
    """The head of a frame."""

    page: int
    commit: bool
    salt: bytes


class Run(Struct, frozen=True):
    """The frames of one transaction: the last frame of each page it wrote, and its last frame."""

    pages: dict[int, int]
    last: int


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


def parse_frame(data: bytes) -> Frame | None:
    """Return the head of a frame, None at the end of the file."""
    if len(data) < FRAME_HEADER:
        return None
    page, commit, salt = _FRAME_WORDS.unpack_from(data)
    return Frame(page, bool(commit), salt)


def runs(read: Read, header: WalHeader, after: int) -> Iterator[Run]:
    """Yield the whole transactions in the frames that follow `after`, up to the first frame of another salt.

    What SQLite has not made visible yet may be among them; see `tailrace.source.sqlite.border`.
    """
    size = FRAME_HEADER + header.page_size
    pages: dict[int, int] = {}
    frame = after
    while True:
        data = read(header.offset(frame + 1), size * _FRAMES_AT_ONCE)
        for place in range(0, len(data) - size + 1, size):
            page, commit, salt = _FRAME_WORDS.unpack_from(data, place)
            if salt != header.salt or page == 0:
                return
            frame += 1
            pages[page] = frame
            if commit:
                yield Run(pages, frame)
                pages = {}
        if len(data) < size * _FRAMES_AT_ONCE:
            return


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
    place = next(place for place in range(9) if cell[place] < 0x80 or place == 8) + 1
    value = 0
    for length in range(9):
        byte = cell[place + length]
        if length == 8:
            return value << 8 | byte
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            break
    return value
