"""Where one transaction ends and the next begins, from the write-ahead log.

A reader sees that rows were added to the change table, not by how many transactions. In WAL mode each transaction
leaves its pages in the log, with a mark at its last frame. The newest row is always the last one of the rightmost leaf
of the change table, so following the *path* from the root to that leaf through the frames of each transaction gives the
newest row after it: a border.

Every border that is found is a true one; where one cannot be found, two transactions are taken as one. Frames at the
end of the log may belong to a transaction that is not visible yet, or never will be (its writer was killed); a run of
frames counts only once a border at or after it lies within what a query has seen.
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
    parse_frame,
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


class BorderFinder:
    """Follows the write-ahead log of one database. Used by one thread."""

    def __init__(self, database: Path) -> None:
        self._name = Path(f"{database}-wal")
        self._file: int | None = None
        self._size = 0
        self._place: _Place | None = None

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

    def borders(self, newest: int) -> list[int]:
        """Return the borders since the last call that are not beyond the `newest` row a query has seen, rising."""
        found: list[int] = []
        header = self._header()
        if self._place is None:
            return found
        safe = current = self._place
        try:
            for run_header, run in self._runs(header, current):
                safe = current  # what another run follows was visible
                current = self._follow(run_header, run, current)
                if current.newest > newest:
                    break
                if current.newest > safe.newest:
                    found.append(current.newest)
                    safe = current
            self._place = safe
        except _LostError:
            self._place = None
        return found

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _runs(self, header: WalHeader | None, place: _Place) -> Iterator[tuple[WalHeader, Run]]:
        """Yield the transactions after a place, also when the log was started anew once since then."""
        if header == place.header:
            for run in runs(self._read, place.header, place.frame):
                yield place.header, run
            return
        if header is None or header.generation != place.header.generation + 1:
            raise _LostError
        for run in runs(self._read, place.header, place.frame):
            yield place.header, run
        frame = parse_frame(self._read(place.header.offset(place.frame + 1), FRAME_HEADER))
        if frame is not None and frame.salt == header.salt:
            raise _LostError  # the new log has run over the end of the old one
        for run in runs(self._read, header, 0):
            yield header, run

    def _follow(self, header: WalHeader, run: Run, place: _Place) -> _Place:
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
        found = parse_frame(data)
        if found is None or found.salt != header.salt or found.page != number:
            return None
        return parse_page(data[FRAME_HEADER:])

    def _header(self) -> WalHeader | None:
        """Return the log's header; None when there is no log. A log that was replaced or cut short is not followed."""
        if self._file is not None and os.fstat(self._file).st_nlink == 0:
            self.close()
        if self._file is None:
            self._place = None
            self._size = 0
            with contextlib.suppress(FileNotFoundError):
                self._file = os.open(self._name, os.O_RDONLY | os.O_CLOEXEC)
            if self._file is None:
                return None
        size = os.fstat(self._file).st_size
        if size < self._size:
            self._place = None
        self._size = size
        return parse_header(self._read(0, HEADER))

    def _read(self, offset: int, size: int) -> bytes:
        assert self._file is not None
        return os.pread(self._file, size, offset)


class _LostError(Exception):
    """The log cannot be followed from here."""
