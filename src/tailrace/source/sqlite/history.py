"""What tells two histories of one change table apart. Pure.

Rows of the change table are numbered. A number alone does not say which row is meant: a copy of the database that was
restored, and written since, has other rows of the same numbers. So each position carries a *mark*: a checksum of all
rows up to there, begun with random bytes when the reader was entered. The database keeps the mark of the row through
which the reader has confirmed, in the transaction that removes the rows before it. All later rows are still there. Who
continues from that mark over those rows, up to the position of the log, comes to the mark of that position, or the log
and the database have seen different changes.

Nothing has to be written at a certain moment for this: what a crash or a power failure takes away from the database
(the last confirmation, say) brings the rows back with it.
"""

import secrets
import zlib
from collections.abc import Sequence
from typing import Any

from msgspec import msgpack

__all__ = ["History", "fresh_mark"]

_encode = msgpack.Encoder().encode

_SEED_BYTES = 64

_NIL = b"\xc0"
_END = b"\xc1"
"""A byte that msgpack never uses."""

_SHORT_CELLS = 16
"""From this many cells, an array begins with three bytes instead of one."""


class History:
    """The rows of a change table up to a number, as a mark.

    Two checksums of 32 bits that can be continued from their values, so a mark is all that has to be kept. Different
    rows have the same mark by chance once in about 2**60 times.
    """

    def __init__(self, number: int, mark: str) -> None:
        self.number = number
        self._crc = int(mark[:8], 16)
        self._adler = int(mark[8:], 16)

    @property
    def mark(self) -> str:
        """Return the mark: 16 hexadecimal digits."""
        return _format(self._crc, self._adler)

    def extend(self, rows: Sequence[Sequence[Any]]) -> None:
        """Go on over the rows that follow, in order; how they are cut into calls makes no difference."""
        if not rows:
            return
        # The table gets more cells when a wider user table appears: NULLs at the end of a row are left out.
        skip = 1 if len(rows[0]) < _SHORT_CELLS else 3
        data = _END.join([_encode(row)[skip:].rstrip(_NIL) for row in rows]) + _END
        self._crc = zlib.crc32(data, self._crc)
        self._adler = zlib.adler32(data, self._adler)
        self.number = rows[-1][0]


def fresh_mark() -> str:
    """Return a mark to begin with, which no other history has."""
    seed = secrets.token_bytes(_SEED_BYTES)
    return _format(zlib.crc32(seed), zlib.adler32(seed))


def _format(crc: int, adler: int) -> str:
    return f"{crc:08x}{adler:08x}"
