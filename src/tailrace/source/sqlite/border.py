"""Where one transaction ends and the next begins, from the write-ahead log.

A reader sees that rows were added to the change table, not by how many transactions. In WAL mode each transaction
leaves its pages in the log, with a mark at its last frame. The newest row is always the last one of the rightmost leaf
of the change table, so following the *path* from the root to that leaf through the frames of each transaction gives the
newest row after it: a border.

Every border that is found is a true one; where one cannot be found, two transactions are taken as one. The last run of
frames in the log may belong to a transaction that is not visible yet, or never will be (its writer was killed, and the
next one writes over it from its first frame on). So it counts only once another run follows it, in this log or in the
one started anew, or a query has seen its rows while its first frame is still the same.

The log is started anew when all of it was copied into the database, and then overwritten from its beginning. At full
speed that is every few milliseconds: `follow` costs little and keeps up between two queries.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from tailrace.source.sqlite.wal import (
    FRAME_HEADER,
    HEADER,
    Interior,
    Leaf,
    Run,
    WalHeader,
    parse_header,
    parse_page,
    runs,
)

__all__ = ["BorderFinder"]

_FRAMES_MAX = 65_536
"""Most frames searched for the place to begin; a longer log gives no borders until it is started anew."""

_DEPTH_MAX = 20
"""More levels than any table of SQLite has."""


class _Place(Struct, frozen=True):
    """How far the log was followed: the pages from the root to the rightmost leaf after `frame`, and the newest row."""

    header: WalHeader
    frame: int
    path: tuple[int, ...]
    newest: int


class _Last(Struct, frozen=True):
    """The last run of the log, which may not be visible nor wholly written yet."""

    header: WalHeader
    first: int
    run: Run


class BorderFinder:
    """Follows the write-ahead log of one database. Used by one thread."""

    def __init__(self, database: Path) -> None:
        self._name = Path(f"{database}-wal")
        self._file: int | None = None
        self._size = 0
        self._place: _Place | None = None
        self._last: _Last | None = None
        self._found: list[int] = []

    @property
    def lost(self) -> bool:
        """Return whether a path is needed, see `begin`."""
        return self._place is None

    def begin(self, path: tuple[int, ...], newest: int) -> None:
        """Start from a path and the newest row, both as one query saw them; its transaction must still be open."""
        header = self._header()
        if header is None or not path:
            return
        frame = 0
        for run in runs(self._read, header, 0):
            if run.last > _FRAMES_MAX:
                return
            leaf = run.pages.get(path[-1])
            if leaf is not None and self._page(header, path[-1], leaf) == Leaf(newest):
                frame = run.last
                break
        self._place = _Place(header, frame, path, newest)

    def follow(self) -> None:
        """Read what was added to the log. Call it more often than the log is started anew to miss nothing."""
        header = self._header()
        try:
            if self._place is not None:
                self._follow(header, self._place)
        except _LostError:
            self._lose()

    def borders(self, newest: int) -> list[int]:
        """Return the borders not returned before that are not beyond the `newest` row a query has seen, rising."""
        self.follow()
        if self._place is not None and self._last is not None and newest > self._place.newest:
            try:
                self._confirm(self._last)  # no other run can have brought what the query has seen
            except _LostError:
                self._lose()
        found = [border for border in self._found if border <= newest]
        self._found = self._found[len(found) :]
        return found

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _follow(self, header: WalHeader | None, place: _Place) -> None:
        last = self._last
        if last is not None and self._head(last.header, last.first) != last.run.head:
            self._last = last = None  # somebody writes over it
        old, after = (last.header, last.run.last) if last is not None else (place.header, place.frame)
        for run_header, first, run in self._runs(header, old, after):
            if last is not None:
                self._confirm(last)
            last = _Last(run_header, first, run)
        self._last = last

    def _runs(self, header: WalHeader | None, old: WalHeader, after: int) -> Iterator[tuple[WalHeader, int, Run]]:
        """Yield the transactions after a frame and their first frames, also if the log was started anew once since."""
        first = after + 1
        for run in runs(self._read, old, after):
            yield old, first, run
            first = run.last + 1
        if header == old:
            return
        if header is None or header.generation != old.generation + 1:
            raise _LostError
        if self._head(old, after + 1)[8:16] == header.salt:
            raise _LostError  # the new log has run over the end of the old one
        first = 1
        for run in runs(self._read, header, 0):
            yield header, first, run
            first = run.last + 1

    def _confirm(self, last: _Last) -> None:
        """Take the last run for visible."""
        assert self._place is not None
        place = self._step(last.header, last.run, self._place)
        if place.newest > self._place.newest:
            self._found.append(place.newest)
        self._place = place
        self._last = None

    def _lose(self) -> None:
        self._place = None
        self._last = None

    def _head(self, header: WalHeader, frame: int) -> bytes:
        """Return the head of a frame: what it is, and the checksum of it and all before it."""
        return self._read(header.offset(frame), FRAME_HEADER)

    def _step(self, header: WalHeader, run: Run, place: _Place) -> _Place:
        """Return the place after one more transaction."""
        old = place.path
        level = next((level for level, page in enumerate(old) if page in run.pages), None)
        if level is None:
            return _Place(header, run.last, old, place.newest)
        path = list(old[:level])
        number = old[level]
        while len(path) < _DEPTH_MAX:
            known = len(path) < len(old) and old[len(path)] == number
            path.append(number)
            if number in run.pages:
                match self._page(header, number, run.pages[number]):
                    case Leaf(last) if last >= place.newest:
                        return _Place(header, run.last, tuple(path), last)
                    case Interior(right):
                        number = right
                    case _:
                        raise _LostError
            elif not known:
                raise _LostError
            elif len(path) == len(old):
                return _Place(header, run.last, tuple(path), place.newest)
            else:
                number = old[len(path)]
        raise _LostError

    def _page(self, header: WalHeader, number: int, frame: int) -> Leaf | Interior | None:
        data = self._read(header.offset(frame), FRAME_HEADER + header.page_size)
        if data[8:16] != header.salt or int.from_bytes(data[:4], "big") != number:
            return None
        return parse_page(data[FRAME_HEADER:])

    def _header(self) -> WalHeader | None:
        """Return the log's header; None when there is no log. A log that was replaced or cut short is not followed."""
        if self._file is not None and os.fstat(self._file).st_nlink == 0:
            self.close()
        if self._file is None:
            self._lose()
            self._size = 0
            with contextlib.suppress(FileNotFoundError):
                self._file = os.open(self._name, os.O_RDONLY | os.O_CLOEXEC)
            if self._file is None:
                return None
        size = os.fstat(self._file).st_size
        if size < self._size:
            self._lose()
        self._size = size
        return parse_header(self._read(0, HEADER))

    def _read(self, offset: int, size: int) -> bytes:
        assert self._file is not None
        return os.pread(self._file, size, offset)


class _LostError(Exception):
    """The log cannot be followed from here."""
