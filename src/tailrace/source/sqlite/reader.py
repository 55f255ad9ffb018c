"""Reads the change table: what is new, where transactions end, and the rows. Blocking; used by one thread at a time."""

import logging
from pathlib import Path
from typing import Any, NamedTuple

import apsw

from tailrace.clock import Clock
from tailrace.model.errors import SourceStateError
from tailrace.model.number import Position
from tailrace.source.reader import Reader
from tailrace.source.sqlite.border import WalPlace
from tailrace.source.sqlite.capture_setup import ensure_capture
from tailrace.source.sqlite.change_table import CHANGE, NEW_LOG, READER, Border, cell_names, mark_of, parse_position
from tailrace.source.sqlite.connection import FileId, connect, rows, translated, writing
from tailrace.source.sqlite.history import History, fresh_mark
from tailrace.source.sqlite.hold import WalHold
from tailrace.source.sqlite.journal import RollbackJournal
from tailrace.source.sqlite.options import SqliteOptions
from tailrace.source.sqlite.place import DatabaseFile
from tailrace.source.sqlite.registry import (
    Capture,
    load_versions,
    mark_reader,
    read_capture,
    read_entry,
    user_trigger_versions,
    window,
)
from tailrace.source.sqlite.table_version import TableVersion

__all__ = ["ChangeReader", "Seen"]

logger = logging.getLogger(__name__)

_PATH_ROWS_MAX = 200_000
"""Most rows of the change table for which its pages are looked up to find the borders of transactions."""

_PATH_REST = 10
"""How much longer to do without borders, once the write-ahead log was lost, than it takes to find it again."""


_Glance = tuple[int, int, str | None]
"""The number of the schema, the newest row and the reader's mark."""

# One statement, so that all three are of one moment. Each statement lets other threads of this process run first.
_GLANCE = (
    f"SELECT (SELECT max(id) FROM {CHANGE}), mark, (SELECT schema_version FROM pragma_schema_version) "  # noqa: S608
    f"FROM {READER} WHERE name = ?"
)

# The rows, and with each of them the reader's mark, as one statement saw both.
_NEWS = f"SELECT *, (SELECT mark FROM {READER} WHERE name = ?) FROM {CHANGE} WHERE id > ? ORDER BY id LIMIT ?"  # noqa: S608


class Seen(NamedTuple):
    """What a look saw: where transactions ended since the one before, rising, and perhaps the first rows.

    The last border is the newest row: all rows through it can be read.
    """

    borders: list[Border]
    rows: list[tuple[Any, ...]]


class ChangeReader:
    """A connection that reads changes, and follows the schema."""

    def __init__(
        self, path: Path, reader: Reader, options: SqliteOptions, clock: Clock, stale: FileId | None = None
    ) -> None:
        """Prepare to read; `stale` is as in `DatabaseFile`."""
        self._path = path.resolve()
        self.place = DatabaseFile(path, stale)
        self._reader = reader
        self._options = options
        self._clock = clock
        self._connection: apsw.Connection | None = None
        self._hold = WalHold(self._path, options, clock)
        self._journal = RollbackJournal(self._path, clock)
        self._data_version = -1
        self._seen: _Glance | None = None
        """What was seen with that version of the data, or was known then."""

        self._wal_place: WalPlace | None = None
        """How far the write-ahead log was followed when it was last looked at."""

        self.schema_version = -1
        """The number of the schema that capture was last fitted to."""

        self._path_time_s = 0.0
        self._written_us = 0
        self.backlog = 0
        """The newest row when the database was opened: where transactions ended before it is not known."""

        self._recognised = -1
        self.capture: Capture | None = None
        self.history: History | None = None
        """What was read so far, from `start` on; who calls `read` extends it."""

        self.marks: frozenset[str | None] = frozenset()
        """The marks with which the reader may be entered in the database now."""
        self.fits = 0
        """Grows each time capture was fitted to the schema."""

    def open(self) -> None:
        """Connect, set capture up or fit it to the schema, and enter the reader.

        Raises:
            SourceStateError: The database does not let us.
            SourceUnavailableError: It is locked or cannot be opened.
        """
        self.close()
        options = self._options
        # Before connecting: opening the database may touch its files. The clock bounds it, as a file may carry a time
        # of the future.
        self._written_us = min(_written_us(self._path), self._clock.now_us())
        self.place.before_open()
        self._connection = connect(self._path, busy_timeout_ms=options.busy_timeout_ms)
        self.place.after_open()
        with translated(self._path):
            self._fit()
            self._hold.open()
            self.backlog = self._newest(self._connection, None) or 0  # from here on, borders are known
        if self.locks_writers:
            logger.warning(
                "the database is not in WAL mode: set a busy timeout in the application, or use "
                "PRAGMA journal_mode = wal",
                extra={"database": str(self._path)},
            )

    def close(self) -> None:
        """Disconnect."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        self._hold.close()
        self._journal.reset()
        self._data_version = -1
        self.history = None

    def start(self, after: Position | None) -> int:
        """Return the number of the row after which to read; `history` begins there.

        Raises:
            SourceStateError: The position is lost, or is one of another history; the message tells why.
        """
        connection = self._open()
        assert self.capture is not None
        self._data_version = -1
        with translated(self._path):
            connection.execute("BEGIN")
            try:
                self._check(connection)
                confirmed, mark = read_entry(connection, self._reader.name) or (window(connection)[1], None)
                number = confirmed if after is None else self._resume(connection, after)
                known = None if after is None else mark_of(after)
                if known is not None:
                    self._compare(connection, confirmed, mark, History(number, known))
            finally:
                connection.execute("COMMIT")
            # The log is older than what the database has confirmed for it: it was restored from a copy. The entry goes
            # back to it, so that nothing is removed that this log still needs.
            if mark is None or number < confirmed:
                # Nothing has a mark after an upgrade: all begins with this one, which is on disk before it is used.
                confirmed, mark = min(number, confirmed), known or fresh_mark()
                with writing(connection):
                    mark_reader(connection, self._reader.name, confirmed, mark)
            self.history = History(number, known) if known else self._walk(History(confirmed, mark), number)
            self.marks = frozenset({mark})
            return number

    @property
    def locks_writers(self) -> bool:
        """Return whether writers have to wait for us while we read, as they do without WAL."""
        return not self._journal.in_wal

    def look(self) -> Seen | None:
        """Return what was committed since the last look; None when nobody has written since.

        What was there when we opened was committed when the file was last written, everything else just now. Follows
        schema changes first.
        """
        connection = self._open()
        with translated(self._path):
            if not self._journal.may_look():
                self.place.look(connection, unwritten=True)
                return None
            glance = self._glance(connection)
            # It changes with each commit of another connection, as the statement before it saw them.
            data_version = connection.data_version()
            self.place.look(connection, unwritten=data_version == self._data_version)
            if data_version == self._data_version and glance == self._seen:
                return None
            newest = self._newest(connection, glance)
            # The schema may change again between fitting and looking; borders and rows must be read with the triggers
            # that wrote them.
            while newest is None:
                self._fit()
                newest = self._newest(connection, None)
            self._data_version, self._seen = data_version, glance
            self._hold.wake()
            now_us = self._clock.now_us()
            # The newest row is always a border: a query sees whole transactions. Where the ones in between are not
            # known, they are taken as one.
            numbers = sorted({*self._hold.borders(newest), min(self.backlog, newest), newest})
            return Seen([Border(n, self._written_us if n <= self.backlog else now_us) for n in numbers], [])

    def look_after_write(self, after: int, limit: int) -> Seen | None:
        """Do what `look` does, soon after a write and knowing the rows through `after`; None where nothing can be seen.

        Where the write-ahead log is followed it tells what is new, and nothing is asked of SQLite but the rows, at most
        `limit`. It says so a moment before a query would. What is unusual is left to `look`, which must be called now
        and then in any case.
        """
        with translated(self._path):
            place = self._hold.follow()
            if place is None or after < self.backlog or place.schema_version != self.schema_version:
                return self.look()
            if place is self._wal_place:
                return None
            if place.newest == after:  # something else was written
                self._wal_place = place
                return Seen([Border(after, 0)], [])
            news = self._news(self._open(), after, place.newest, limit)
            if news is None:
                return self.look()
            self._wal_place = place
            self._hold.wake()
            now_us = self._clock.now_us()
            numbers = self._hold.take(place.newest)
            if not numbers or numbers[-1] != place.newest:
                numbers.append(place.newest)
            return Seen([Border(number, now_us) for number in numbers], news)

    def _news(self, connection: apsw.Connection, after: int, newest: int, limit: int) -> list[tuple[Any, ...]] | None:
        """Return rows after a number and through the newest of which we know; None where something is unusual."""
        try:
            found = rows(connection, _NEWS, (self._reader.name, after, limit))
        except (apsw.SQLError, UnicodeDecodeError):
            return None  # it is another schema, or not all text is text
        if newest <= after or not found or found[0][-1] not in self.marks or found[0][0] != after + 1:
            return None
        data_version = connection.data_version()
        # After the rows: while it is the same file then, nothing that they saw was written to another one.
        self.place.check(connection)
        last = found[-1][0]
        if last == newest:
            self._data_version, self._seen = data_version, (self.schema_version, newest, found[0][-1])
        while last > newest:  # the query saw more than the log when it was followed: that comes with the next look
            found.pop()
            last = found[-1][0]
        return [row[:-1] for row in found]

    def read(self, after: int, through: int, limit: int) -> list[tuple[Any, ...]]:
        """Return at most `limit` rows after one number and through another, oldest first."""
        connection = self._open()
        where = f"FROM {CHANGE} WHERE id > ? AND id <= ? ORDER BY id LIMIT ?"
        if self.locks_writers:
            self._journal.wait_for_gap()
            # Without WAL a reader keeps writers out. Short reads in the gaps between transactions let them through.
            limit = min(limit, self._options.read_changes_locked)
        with translated(self._path):
            try:
                return rows(connection, f"SELECT * {where}", (after, through, limit))
            except UnicodeDecodeError:
                return self._read_bytes(connection, where, (after, through, limit))

    def versions(self) -> tuple[dict[int, TableVersion], set[int], frozenset[int]]:
        """Return all table versions, the numbers of the live ones, and of those whose tables have user triggers."""
        connection = self._open()
        with translated(self._path):
            live = set(load_versions(connection, live=True))
            return load_versions(connection, live=False), live, user_trigger_versions(connection)

    def _open(self) -> apsw.Connection:
        if self._connection is None:
            raise SourceStateError("the source is closed; open it first")
        return self._connection

    def _fit(self) -> None:
        connection = self._open()
        with writing(connection):
            if self.history is not None and int(connection.pragma("schema_version")) != self._recognised:
                return  # it changed again: look first what it is now
            self.capture = ensure_capture(connection, self._reader)
        self.schema_version = self.capture.schema_version
        self.fits += 1

    def _resume(self, connection: apsw.Connection, after: Position) -> int:
        """Return the row that a position stands for, if all that follow it are there."""
        assert self.capture is not None
        first, last = window(connection)
        number = parse_position(after, self.capture.capture)
        if number < first - 1:
            raise SourceStateError(
                f"the changes after {after!r} are no longer in the database, the oldest is {first}: they were "
                f"removed while this log was not registered as a reader; {NEW_LOG}"
            )
        if number > last:
            raise SourceStateError(
                f"the log ends at {after!r}, the database at {last}: it was restored from an older copy; {NEW_LOG}"
            )
        return number

    def _compare(self, connection: apsw.Connection, confirmed: int, mark: str | None, known: History) -> None:
        """Refuse to go on when the database has another history than the one that the log knows."""
        if mark is not None:
            lower, upper = History(confirmed, mark), known
            # History marks are chained: walking from the older one over the rows must give the newer one, or the rows
            # between are not those that the log has.
            if lower.number > upper.number:  # the log is an older copy, too
                lower, upper = History(known.number, known.mark), lower
            reached = self._walk(lower, upper.number)
            if (reached.number, reached.mark) == (upper.number, upper.mark):
                return
        raise SourceStateError(
            f"the changes up to {known.number} in the database are not those that the log has: it was restored from "
            f"an older copy and written since, or capture forgot this log; {NEW_LOG}"
        )

    def _walk(self, history: History, through: int) -> History:
        """Continue a history over the rows of the database through a number."""
        while history.number < through:
            found = self.read(history.number, through, self._options.read_changes_max)
            if not found or found[0][0] != history.number + 1:
                break
            history.extend(found)
        return history

    def _recognise(self, connection: apsw.Connection) -> None:
        """Refuse to go on when the database that we read was exchanged for another state of it."""
        self._check(connection)
        if self.history is not None:
            confirmed, mark = read_entry(connection, self._reader.name) or (0, None)
            self._compare(connection, confirmed, mark, self.history)

    def _check(self, connection: apsw.Connection) -> None:
        """Refuse to go on when capture is not the one that was opened."""
        capture = read_capture(connection)
        if capture is None or self.capture is None or capture.capture != self.capture.capture:
            raise SourceStateError(f"capture was removed from the database; {NEW_LOG}")

    def _glance(self, connection: apsw.Connection) -> _Glance | None:
        """Return the number of the schema, the newest row and the reader's mark; None where they are not there."""
        try:
            found = rows(connection, _GLANCE, (self._reader.name,))
        except apsw.SQLError:
            return None  # a table or a column is not there: it is another schema
        if not found or found[0][0] is None:
            return None
        newest, mark, schema_version = found[0]
        return schema_version, newest, mark

    def _newest(self, connection: apsw.Connection, glance: _Glance | None) -> int | None:
        """Return the newest row; None when capture does not fit the schema, which then must be fixed first."""
        # Nearly always nothing but rows has changed since the last look. A restore through SQLite's backup (`.restore`)
        # always changes the number of the schema.
        if glance is not None and not self._hold.lost:
            schema_version, newest, mark = glance
            history = self.history
            known = history is None or (newest >= history.number and mark in self.marks)
            if known and schema_version == self.schema_version:
                return newest
        return self._newest_of_all(connection)

    def _newest_of_all(self, connection: apsw.Connection) -> int | None:
        connection.execute("BEGIN")
        try:
            version = int(connection.pragma("schema_version"))
            if version != self.schema_version:
                self._recognise(connection)
                self._recognised = version
                return None
            first, last = window(connection)
            entry = read_entry(connection, self._reader.name)
            if self.history is not None and (last < self.history.number or (entry and entry[1] not in self.marks)):
                self._recognise(connection)
            begin_s = self._clock.monotonic_s()
            if self._hold.lost and last - first < _PATH_ROWS_MAX and begin_s >= self._path_time_s:
                self._hold.begin(_rightmost_path(connection), last, self.schema_version)
                end_s = self._clock.monotonic_s()
                # Reading the path scans the pages of the change table. It is repeated at a bounded share of time,
                # however large the table is.
                self._path_time_s = end_s + _PATH_REST * (end_s - begin_s)
            return last
        finally:
            connection.execute("COMMIT")

    def _read_bytes(
        self, connection: apsw.Connection, where: str, bindings: tuple[int, int, int]
    ) -> list[tuple[Any, ...]]:
        """Return rows of which some hold text that is no valid text; such a value comes as bytes."""
        assert self.capture is not None
        names = cell_names(self.capture.width)
        cells = ",".join(
            f"typeof({name}) = 'text', CASE typeof({name}) WHEN 'text' THEN CAST({name} AS BLOB) ELSE {name} END"
            for name in names
        )
        encoding = str(connection.pragma("encoding"))
        found = []
        for row in rows(connection, f"SELECT id, h, {cells} {where}", bindings):
            pairs = zip(row[2::2], row[3::2], strict=True)
            found.append((*row[:2], *(_text(value, encoding) if is_text else value for is_text, value in pairs)))
        return found


def _written_us(database: Path) -> int:
    """Return when the database was last written, in microseconds since the Unix epoch; 0 when it is not there."""
    files = [file for file in (database, Path(f"{database}-wal")) if file.exists()]
    return max((file.stat().st_mtime_ns // 1000 for file in files), default=0)


def _text(data: bytes, encoding: str) -> str | bytes:
    try:
        return data.decode(encoding)
    except UnicodeDecodeError:
        return data


def _rightmost_path(connection: apsw.Connection) -> tuple[int, ...]:
    """Return the pages from the root of the change table to its last leaf."""
    found = rows(connection, "SELECT path, pageno FROM dbstat WHERE name = ? AND pagetype <> 'overflow'", (CHANGE,))
    pages = {tuple(int(child, 16) for child in path.split("/") if child): page for path, page in found}
    last = max(pages, default=())
    return tuple(pages[last[:level]] for level in range(len(last) + 1)) if pages else ()
