"""A database in memory that a test writes to, as a kind of source with a URL scheme of its own: `scripted://NAME`.

A test registers the scheme for as long as it runs: `monkeypatch.setitem(KINDS, "scripted", lambda: kind)` with
`kind = ScriptedKind({"shop": ScriptedDatabase()})` gives `scripted://shop` something to name.
"""

import asyncio
import functools
import secrets
import threading
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from enum import StrEnum
from typing import Concatenate, ParamSpec
from urllib.parse import urlsplit

from msgspec import Struct, structs
from msgspec import json as msgspec_json

from tailrace.model.commit import Draft, Progress
from tailrace.model.errors import ConfigError, NotFoundError, SourceAbilityError, SourceStateError
from tailrace.model.image import NO_KEY, encode_image, encode_key
from tailrace.model.number import Position, SchemaId
from tailrace.model.op import Op
from tailrace.model.table import Column, Kind, TableName, TableSchema
from tailrace.model.value import Value
from tailrace.source.administration import CaptureStatus, Finding, ReaderStatus, Severity
from tailrace.source.base import QuerySource, SchemaRegistry
from tailrace.source.kind import OpenedSource, SourceTools
from tailrace.source.reader import Reader
from tailrace.testing.source import in_parts

__all__ = ["Before", "ReadTable", "ScriptedCapture", "ScriptedDatabase", "ScriptedKind", "ScriptedOptions"]

Row = Mapping[str, Value]
TablePath = tuple[str, str]
"""Schema, empty for the default one, and name of a table."""


_P = ParamSpec("_P")


def _locked(
    method: "Callable[Concatenate[ScriptedDatabase, _P], None]",
) -> "Callable[Concatenate[ScriptedDatabase, _P], None]":
    """Make a method of a database one step for all threads: rows and the commit that has them change together."""

    @functools.wraps(method)
    def run(self: "ScriptedDatabase", /, *args: _P.args, **kwargs: _P.kwargs) -> None:
        with self._lock:
            method(self, *args, **kwargs)

    return run


class ReadTable(Struct, frozen=True):
    """A table as one transaction sees it: keys and images of its rows, after how many commits, in which catalog."""

    schema: TableSchema
    rows: list[tuple[bytes, bytes]]
    through: int
    catalog: str


class _Change(Struct, frozen=True):
    op: Op
    schema: TableSchema
    key: bytes
    before: bytes | None
    after: bytes | None


class Before(StrEnum):
    """How much of a row as it was updates and deletes carry."""

    WHOLE = "whole"
    KEY = "key"
    NONE = "none"


class ScriptedDatabase:
    """Tables whose rows a test writes, and every commit that was made. It never forgets, and is never locked.

    `before` says what it sends of rows as they were; an update sends the columns `unchanged` only where it sets them.
    All methods may be called from any thread. Each write is its own commit, unless it is made between `begin` and
    `commit`; what it does until then is read by nobody. Tables are not made and changed between those.
    """

    def __init__(
        self,
        *,
        before: Before = Before.WHOLE,
        unchanged: Collection[str] = (),
        group_commits_max: int = 16,
        part_changes_max: int = 1000,
    ) -> None:
        self.before = before
        self.unchanged = frozenset(unchanged)
        self.capture: str | None = None
        self.readers: dict[str, int] = {}
        """Through which commit each reader has confirmed; one without changes counts, too."""

        self.began: dict[str, int] = {}
        """After which commit each reader began."""

        self.ephemeral: set[str] = set()
        self.part_changes_max = part_changes_max
        self.group_commits_max = group_commits_max
        self.commits: list[list[_Change]] = []
        self._histories: dict[TablePath, list[TableSchema]] = {}
        self._rows: dict[TablePath, dict[bytes, Row]] = {}
        self._numbers = 0
        self._open: list[_Change] | None = None
        self._lock = threading.RLock()
        self._committed: dict[TablePath, dict[bytes, Row]] | None = None
        """The rows as they were before the transaction that is open."""

        self.sources: set[ScriptedCapture] = set()

    def read(self, name: str, schema: str = "") -> ReadTable | None:
        """Return a table with its rows as committed; None where there is no such table."""
        with self._lock:
            if (schema, name) not in self._histories:
                return None
            table = self._table(name, schema)
            rows = (self._rows if self._committed is None else self._committed)[schema, name]
            read = [(key, self._image(table, self._whole(table, row))) for key, row in rows.items()]
            return ReadTable(table, read, len(self.commits), self.catalog)

    def read_all(self) -> list[ReadTable]:
        """Return all tables with their rows, as one transaction sees them."""
        with self._lock:
            found = [self.read(name, schema) for schema, name in self._histories]
            return [one for one in found if one is not None]

    @property
    def catalog(self) -> str:
        """Return the name of the version of all schemas together."""
        return str(sum(map(len, self._histories.values())))

    def histories(self) -> list[list[TableSchema]]:
        """Return all versions of each table, the oldest first."""
        return list(self._histories.values())

    @_locked
    def create(self, name: str, columns: Mapping[str, Kind], key: Sequence[str] = (), schema: str = "") -> None:
        """Make a table. Without a key, its rows are known by a hidden number."""
        column_values = tuple(Column(column, kind, nullable=column not in key) for column, kind in columns.items())
        ddl = f"CREATE TABLE {name}({', '.join(columns)})"
        self._histories[schema, name] = [TableSchema(TableName("", name, schema), 1, column_values, tuple(key), ddl)]
        self._rows[schema, name] = {}
        self._note_schema((schema, name))

    @_locked
    def add_column(self, name: str, column: str, kind: Kind, schema: str = "") -> None:
        """Add a column, which has no value in rows that are there."""
        old = self._table(name, schema)
        columns = (*old.columns, Column(column, kind))
        ddl = f"CREATE TABLE {name}({', '.join(one.name for one in columns)})"
        changed = structs.replace(old, version=old.version + 1, columns=columns, ddl=ddl)
        self._histories[schema, name].append(changed)
        self._note_schema((schema, name))

    @_locked
    def insert(self, name: str, row: Row, schema: str = "") -> None:
        """Add a row; columns that it lacks are null."""
        table = self._table(name, schema)
        row = self._whole(table, row)
        self._numbers += 1
        key = encode_key([row[column] for column in table.key] if table.key else [self._numbers], table)
        self._rows[schema, name][key] = row
        self._note(_Change(Op.INSERT, table, key, None, self._image(table, row)))

    @_locked
    def update(self, name: str, where: Row, values: Row, schema: str = "") -> None:
        """Set columns, none of them of the key, in the rows that have these values."""
        table, rows = self._table(name, schema), self._rows[schema, name]
        for key in self._matching(rows, where):
            old, new = rows[key], {**rows[key], **values}
            rows[key] = new
            sent = {column: value for column, value in new.items() if column in values or column not in self.unchanged}
            self._note(_Change(Op.UPDATE, table, key, self._before(table, old), self._image(table, sent)))

    @_locked
    def delete(self, name: str, where: Row, schema: str = "") -> None:
        """Remove the rows that have these values."""
        table, rows = self._table(name, schema), self._rows[schema, name]
        for key in self._matching(rows, where):
            self._note(_Change(Op.DELETE, table, key, self._before(table, rows.pop(key)), None))

    @_locked
    def truncate(self, name: str, schema: str = "") -> None:
        """Remove all rows at once."""
        self._rows[schema, name].clear()
        self._note(_Change(Op.TRUNCATE, self._table(name, schema), NO_KEY, None, None))

    def begin(self) -> None:
        """Begin a transaction: what follows is one commit."""
        with self._lock:
            self._open = []
            self._committed = {path: dict(rows) for path, rows in self._rows.items()}

    def commit(self) -> None:
        """End the transaction; what it did is seen by all sources."""
        with self._lock:
            done, self._open = self._open, None
            assert done is not None
            self._committed = None
            if done:
                self._publish(done)

    def rollback(self) -> None:
        """End the transaction as if it had not been."""
        with self._lock:
            assert self._committed is not None
            self._rows, self._committed, self._open = self._committed, None, None

    @_locked
    def move_on(self) -> None:
        """Do something that is not captured: the position moves on, and no change comes."""
        self._publish([])

    def _table(self, name: str, schema: str) -> TableSchema:
        return self._histories[schema, name][-1]

    @staticmethod
    def _matching(rows: Mapping[bytes, Row], where: Row) -> list[bytes]:
        return [key for key, row in rows.items() if all(row.get(name) == value for name, value in where.items())]

    @staticmethod
    def _whole(table: TableSchema, row: Row) -> Row:
        """Return a row with all columns: those that were added later are null."""
        return {column.name: row.get(column.name) for column in table.columns}

    @staticmethod
    def _image(table: TableSchema, row: Row) -> bytes:
        return encode_image({column.name: row[column.name] for column in table.columns if column.name in row}, table)

    def _before(self, table: TableSchema, row: Row) -> bytes | None:
        match self.before:
            case Before.WHOLE:
                return self._image(table, row)
            case Before.KEY:
                return self._image(table, {column: row[column] for column in table.key}) if table.key else None
            case Before.NONE:
                return None

    def _note_schema(self, path: TablePath) -> None:
        table = self._histories[path][-1]
        self._note(_Change(Op.SCHEMA, table, NO_KEY, None, msgspec_json.encode({"ddl": table.ddl})))

    def _note(self, change: _Change) -> None:
        if self._open is None:
            self._publish([change])
        else:
            self._open.append(change)

    def _publish(self, changes: list[_Change]) -> None:
        self.commits.append(changes)
        for source in tuple(self.sources):
            source.wake()


class ScriptedCapture:
    """The capturing side of a database in memory; see `Source`."""

    def __init__(
        self,
        name: str,
        database: ScriptedDatabase,
        reader: Reader,
        tools: SourceTools | None = None,
        dialect: str = "sqlite",
    ) -> None:
        self.name = name
        self._dialect = dialect
        self._database = database
        self._reader = reader
        self._tools = tools
        self._registry: SchemaRegistry | None = None
        self._ids: dict[tuple[TableName, int], SchemaId] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._woken = asyncio.Event()

    @property
    def direct(self) -> None:
        """Return nothing: commits come by `commits` alone."""

    async def open(self, registry: SchemaRegistry) -> None:
        """Enter the reader, and announce the tables."""
        database = self._database
        database.capture = database.capture or secrets.token_hex(4)
        database.readers.setdefault(self._reader.name, len(database.commits))
        database.began.setdefault(self._reader.name, len(database.commits))
        if self._reader.ephemeral:
            database.ephemeral.add(self._reader.name)
        self._registry, self._loop = registry, asyncio.get_running_loop()
        database.sources.add(self)
        await self._announce()

    async def commits(self, after: Position | None) -> AsyncGenerator[Sequence[Draft] | Progress, None]:
        """Yield the commits after a position, some at a time, and progress where a commit has no changes."""
        database = self._database
        next_ = database.readers[self._reader.name] if after is None else int(after)
        if next_ > len(database.commits):
            raise SourceStateError(f"position {after} is not in this database")
        while True:
            self._woken.clear()
            group: list[Draft] = []
            while next_ < len(database.commits) and len(group) < database.group_commits_max:
                changes = database.commits[next_]
                if not changes and group:
                    break
                next_ += 1
                if not changes:
                    yield Progress(Position(str(next_)))
                    break
                group += in_parts(await self._draft(next_, changes), database.part_changes_max)
            if group:
                yield group
            elif next_ == len(database.commits):
                await self._woken.wait()

    async def confirm(self, position: Position) -> None:
        """Note how far the log is."""
        self._database.readers[self._reader.name] = int(position)

    async def close(self) -> None:
        """Leave; an ephemeral reader is forgotten."""
        self._database.sources.discard(self)
        if self._reader.ephemeral:
            self._database.readers.pop(self._reader.name, None)
            self._database.ephemeral.discard(self._reader.name)

    def tables(self) -> Sequence[TableSchema]:
        """Return the tables as they are now."""
        return [self._named(history[-1]) for history in self._database.histories()]

    def wake(self) -> None:
        """Have the stream look for commits."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._woken.set)

    async def _announce(self) -> None:
        assert self._registry is not None
        for history in self._database.histories():
            announced = await self._registry.put_schemas([self._named(schema) for schema in history])
            for schema, (number, _) in zip(history, announced, strict=True):
                self._ids[schema.table, schema.version] = number

    def _named(self, schema: TableSchema) -> TableSchema:
        table = structs.replace(schema.table, source=self.name)
        return structs.replace(schema, table=table, dialect=self._dialect)

    async def _draft(self, number: int, changes: Sequence[_Change]) -> Draft:
        now_us = self._tools.clock.now_us() if self._tools is not None else number
        draft = Draft(Position(str(number)), now_us, txid=number)
        for change in changes:
            version = (change.schema.table, change.schema.version)
            if version not in self._ids:
                await self._announce()
            draft.add(change.op, self._ids[version], change.key, before=change.before, after=change.after)
        return draft


class ScriptedOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """Options of a source in memory."""

    note: str = ""
    delay_ms: int = 0


class ScriptedKind:
    """Sources in memory, by the host of their URL. They can only be captured, unless `reads` makes a reading side."""

    title = "Scripted"
    dialect = "sqlite"
    options = ScriptedOptions

    def __init__(
        self,
        databases: dict[str, ScriptedDatabase] | None = None,
        reads: Callable[[str, ScriptedDatabase], QuerySource] | None = None,
    ) -> None:
        self._reads = reads
        self.databases = {} if databases is None else databases
        self.opened: list[ScriptedOptions] = []
        """The options of every opening."""

    def require_url(self, url: str) -> None:
        """Look whether a URL names a database that a test has made."""
        if urlsplit(url).netloc not in self.databases:
            raise ConfigError(f"there is no scripted database {urlsplit(url).netloc!r}")

    def check(self, url: str, options: ScriptedOptions) -> None:
        """Find nothing wrong."""

    def open(self, name: str, url: str, options: ScriptedOptions, reader: Reader, tools: SourceTools) -> OpenedSource:
        """Return the capturing side, and the reading side where there is one."""
        self.opened.append(options)
        capture = ScriptedCapture(name, self._database(url), reader, tools, self.dialect)
        reads = None if self._reads is None else self._reads(name, self._database(url))
        return OpenedSource(capture, self.dialect, reads)

    def administer(self, url: str, options: ScriptedOptions) -> "ScriptedAdministration":
        """Return what operators do to the database."""
        return ScriptedAdministration(urlsplit(url).netloc, self._database(url))

    def _database(self, url: str) -> ScriptedDatabase:
        return self.databases[urlsplit(url).netloc]


class ScriptedAdministration:
    """Capture in a database in memory; see `Administration`."""

    def __init__(self, name: str, database: ScriptedDatabase) -> None:
        self._name = name
        self._database = database

    def set_up(self) -> Sequence[str]:
        """Note that capture is set up."""
        self._database.capture = self._database.capture or secrets.token_hex(4)
        return ()

    def remove(self, *, force: bool) -> bool:
        """Forget capture and its readers, unless one reads."""
        if self._database.sources and not force:
            raise SourceStateError("a reader is active, and would fail")
        there, self._database.capture = self._database.capture is not None, None
        self._database.readers.clear()
        return there

    def remove_reader(self, name: str, *, force: bool) -> None:
        """Forget a reader."""
        if self._database.readers.pop(name, None) is None:
            raise NotFoundError(f"reader {name!r} not found")

    def status(self) -> CaptureStatus:
        """Return who reads, and how many commits wait."""
        database = self._database
        if database.capture is None:
            return CaptureStatus(None)
        last = len(database.commits)
        readers = tuple(
            ReaderStatus(name, last - confirmed, name in database.ephemeral, alive=True, reading=bool(database.sources))
            for name, confirmed in sorted(database.readers.items())
        )
        tables = tuple(sorted(history[-1].table.wire for history in database.histories()))
        return CaptureStatus(database.capture, tables, max((one.waiting for one in readers), default=0), 0, readers)

    def execute(self, sql: str, *, bulk: bool) -> None:
        """Refuse: there is nothing that capture is in the way of."""
        raise SourceAbilityError(self._name, "runs no statements: change its schema as usual")

    def doctor(self) -> Sequence[Finding]:
        """Find nothing wrong."""
        return [Finding("access", Severity.OK, "it is in memory")]
