"""Where one transaction ends and the next begins, from the write-ahead log.

A reader sees that rows were added to the change table, not by how many transactions. In WAL mode each transaction
leaves its pages in the log, with a mark at its last frame. The newest row is always the last one of the rightmost leaf
of the change table, so following the *path* from the root to that leaf through the frames of each transaction gives the
newest row after it: a border.

Only frames that SQLite has made visible are followed: what comes behind them may be half written, or left by a writer
that was killed. Every border that is found is a true one; where one cannot be found, two transactions are taken as one.

The log is restarted when all of it was copied into the database, and then overwritten from its beginning. While it
is *held* (see `tailrace.source.sqlite.hold`) that happens only after everything in it was followed, so nothing is lost.
A log that is restarted while it is not held is lost, until `begin`.
"""

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from tailrace.source.sqlite.wal import (
    FRAME_HEADER,
    HEADER,
    FrameRun,
    Interior,
    Leaf,
    WalHeader,
    parse_header,
    parse_page,
    runs,
)

__all__ = ["BorderFinder", "WalPlace"]

_FRAMES_MAX = 65_536
"""Most frames searched for the place to begin; a longer log gives no borders until it is restarted."""

_DEPTH_MAX = 20
"""More levels than any table of SQLite has."""

_FOUND_MAX = 1_000_000
"""Most borders kept for a reader that does not fetch them; beyond that every second one is forgotten."""

_LOOKS_MAX = 3
"""How often to look again at a log that is restarted just now."""

_SCHEMA_PAGE = 1
_COOKIE = slice(40, 44)
_LARGEST_ROOT = slice(52, 56)
"""Where the first page says which version of the schema it is, and whether SQLite moves pages by itself (not 0)."""


class WalPlace(Struct, frozen=True):
    """How far the log was followed: the pages from the root to the rightmost leaf after `frame`, and the newest row.

    Without a header the log was empty: all that it gets comes after this place.
    """

    header: WalHeader | None
    frame: int
    path: tuple[int, ...]
    newest: int
    schema_version: int


class BorderFinder:
    """Follows the write-ahead log of one database. Used by one thread at a time.

    `visible` returns how many frames of the log can be seen by readers now. `root` returns the root page of the change
    table in a version of the schema, None if there is a newer version.
    """

    def __init__(self, database: Path, visible: Callable[[], int], root: Callable[[int], int | None]) -> None:
        self._name = Path(f"{database}-wal")
        self._visible = visible
        self._root = root
        self._file: int | None = None
        self._head: tuple[bytes, WalHeader | None] = (b"", None)
        """The header as it was read last, and what it says."""

        self._block = (0, b"")
        self._held = False
        self._place: WalPlace | None = None
        self._found: list[int] = []

    @property
    def lost(self) -> bool:
        """Return whether a path is needed, see `begin`."""
        return self._place is None

    @property
    def place(self) -> WalPlace | None:
        """Return how far the log was followed; the same object as before when nothing came since. None when lost."""
        return self._place

    def begin(self, path: tuple[int, ...], newest: int, schema_version: int) -> None:
        """Start from a path and the newest row, both as one query saw them; its transaction must still be open."""
        try:
            header, frames = self._look()
        except _LostError:
            return
        # Without a hold an empty log proves nothing: it may have been filled and restarted since the query saw the
        # path.
        if not path or (header is None and not self._held) or frames > _FRAMES_MAX:
            return
        frame = 0
        if header is not None:
            for run in runs(self._read_on, header, 0, frames):
                leaf = run.pages.get(path[-1])
                # The query may have seen more or less than the frames that are visible now. The transaction that left
                # exactly this row as the newest is the one it saw.
                if leaf is not None and self._page(header, path[-1], leaf) == Leaf(newest):
                    frame = run.last
                    break
        self._place = WalPlace(header, frame, path, newest, schema_version)

    def hold(self) -> None:
        """Take notice that the log is held once more, or for the first time. A hold before must still be there."""
        self.follow()
        self._held = True

    def release(self) -> None:
        """Take notice that the log is not held any more."""
        self._held = False

    def follow(self) -> None:
        """Follow what is visible in the log by now."""
        place = self._place
        if place is None:
            return
        found: list[int] = []
        try:
            place = self._follow(place, found)
        except _LostError:
            place = None
        self._place = place
        self._found += found
        if len(self._found) > _FOUND_MAX:
            # Every second border and not the oldest half: commits stay of about equal size, and the memory is bounded
            # however long nobody reads.
            del self._found[::2]

    def borders(self, newest: int) -> list[int]:
        """Return the borders not returned before that are not beyond the `newest` row a query has seen, rising."""
        self.follow()
        return self.take(newest)

    def take(self, newest: int) -> list[int]:
        """Return the same of what was followed before."""
        # The log may be ahead of the query: a border beyond its newest row belongs to rows that it did not read.
        found = [border for border in self._found if border <= newest]
        self._found = self._found[len(found) :]
        return found

    def close(self) -> None:
        """Close the file, and forget the place."""
        self._held = False
        self._place = None
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _follow(self, place: WalPlace, found: list[int]) -> WalPlace:
        """Return the place after all that is visible; add the borders on the way."""
        return self._follow_on(place, found) or self._follow_anew(place, found)

    def _follow_on(self, place: WalPlace, found: list[int]) -> WalPlace | None:
        """Do so where the log goes on as it was, as nearly always; None where it may not.

        The header is read last: while it is the same, and the file has its name, all that was read before belongs
        to it. It is in the file before any frame behind it is visible.
        """
        if self._file is None or place.header is None:
            return None
        borders: list[int] = []
        followed = place
        try:
            for run in runs(self._read_on, place.header, place.frame, self._visible()):
                step = self._step(place.header, run, followed)
                # A transaction that added no row to the change table is no border for us.
                if step.newest > followed.newest:
                    borders.append(step.newest)
                followed = step
        except _LostError:
            return None
        if self._header() != place.header or os.fstat(self._file).st_nlink == 0:
            return None
        found += borders
        return followed

    def _follow_anew(self, place: WalPlace, found: list[int]) -> WalPlace:
        """Do so whatever has become of the log."""
        header, frames = self._look()
        after = place.frame
        if header != place.header:
            if not self._held:
                raise _LostError
            if header is None:
                return place  # the log was cut to nothing, and nothing was written since
            after = 0  # what was visible in the old one was followed when the hold began
        if header is None:
            return place
        borders: list[int] = []
        followed, lost = place, False
        for run in runs(self._read_on, header, after, frames):
            try:
                step = self._step(header, run, followed)
            except _LostError:
                lost = True
                break
            if step.newest > followed.newest:
                borders.append(step.newest)
            followed = step
        if self._header() != header:
            # Started again since we looked. A hold lets that happen only to a log that has nothing new: the next look
            # follows the new one from its beginning. Otherwise what was read may have been overwritten.
            if self._held and after >= frames:
                return place
            raise _LostError
        found += borders
        if lost:
            raise _LostError
        return followed

    def _look(self) -> tuple[WalHeader | None, int]:
        """Return the header of the log and how many of its frames are visible."""
        # The last program closed the database and SQLite removed the log; a new one has another inode. What the old
        # file says is history.
        if self._file is not None and os.fstat(self._file).st_nlink == 0:
            self.close()
            raise _LostError
        header = self._header()
        for _ in range(_LOOKS_MAX):
            frames = self._visible()
            again = self._header()
            if again == header:
                return header, frames
            header = again
        raise _LostError

    def _step(self, header: WalHeader, run: FrameRun, place: WalPlace) -> WalPlace:
        """Return the place after one more transaction."""
        old, pages = place.path, run.pages
        if _SCHEMA_PAGE not in pages and old[-1] in pages and (len(old) == 1 or pages.keys().isdisjoint(old[:-1])):
            page = self._page(header, old[-1], pages[old[-1]])  # as nearly always: rows were added to the same leaf
            if isinstance(page, Leaf) and page.last >= place.newest:
                return WalPlace(header, run.last, old, page.last, place.schema_version)
        root, schema_version = self._root_after(header, run, place)
        if root != old[0]:
            old = ()  # the table has moved, as VACUUM does: all of its pages are in this run
        path: list[int] = []
        number = root
        while len(path) < _DEPTH_MAX:
            path.append(number)
            if number in run.pages:
                match self._page(header, number, run.pages[number]):
                    # Rows of the change table are only added at its end. A newest row that went back means pages that
                    # we misunderstand: no border is better than a wrong one.
                    case Leaf(last) if last >= place.newest:
                        return WalPlace(header, run.last, tuple(path), last, schema_version)
                    case Interior(right):
                        number = right
                    case _:
                        raise _LostError
            elif number not in old:
                raise _LostError
            elif number == old[-1]:
                return WalPlace(header, run.last, tuple(path), place.newest, schema_version)
            else:
                number = old[old.index(number) + 1]  # it is as it was, though a level above it may have gone
        raise _LostError

    def _root_after(self, header: WalHeader, run: FrameRun, place: WalPlace) -> tuple[int, int]:
        """Return the root of the change table and the version of the schema after a transaction."""
        frame = run.pages.get(_SCHEMA_PAGE)
        if frame is None:
            return place.path[0], place.schema_version
        page = self._read(header.offset(frame) + FRAME_HEADER, _LARGEST_ROOT.stop)
        schema_version = int.from_bytes(page[_COOKIE], "big")
        # VACUUM moves tables; it writes all pages but perhaps the one that SQLite locks. Others do so on auto-vacuum.
        moves = len(run.pages) >= run.size - 1 or any(page[_LARGEST_ROOT])
        if schema_version == place.schema_version or not moves:
            return place.path[0], schema_version
        root = self._root(schema_version)
        if root is None:
            raise _LostError
        return root, schema_version

    def _page(self, header: WalHeader, number: int, frame: int) -> Leaf | Interior | None:
        data = self._read(header.offset(frame), FRAME_HEADER + header.page_size)
        # The salt changes with each restart of the log: a frame with another one is a leftover of the log before.
        if data[8:16] != header.salt or int.from_bytes(data[:4], "big") != number:
            return None
        return parse_page(data[FRAME_HEADER:])

    def _header(self) -> WalHeader | None:
        """Return the log's header; None when there is no log."""
        if self._file is None:
            with contextlib.suppress(FileNotFoundError):
                self._file = os.open(self._name, os.O_RDONLY | os.O_CLOEXEC)
            if self._file is None:
                return None
        data = os.pread(self._file, HEADER, 0)
        if data != self._head[0]:
            self._head = (data, parse_header(data))
        return self._head[1]

    def _read_on(self, offset: int, size: int) -> bytes:
        """Return bytes of the file, and keep them: `_read` will want parts of them."""
        assert self._file is not None
        data = os.pread(self._file, size, offset)
        self._block = (offset, data)
        return data

    def _read(self, offset: int, size: int) -> bytes:
        """Return bytes of the file, from what `_read_on` read last if they are there.

        One call of the system for many transactions: each one lets other threads of Python go first.
        """
        start, data = self._block
        place = offset - start
        if place >= 0 and place + size <= len(data):
            return data[place : place + size]
        assert self._file is not None
        return os.pread(self._file, size, offset)


class _LostError(Exception):
    """The log cannot be followed from here."""
