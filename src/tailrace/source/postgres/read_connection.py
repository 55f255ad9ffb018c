"""A connection that reads rows: transactions of which it is known what they see, and rows as the server writes them.

Rows come by COPY in text form: that is the text that the replication stream has, and it needs no memory for more than a
row at a time.
"""
# ruff: noqa: S608 (the statements are put together from our own constants and quoted names)

import contextlib
import re
import threading
import time
from collections.abc import Generator, Iterator
from typing import Any

import psycopg
from msgspec import Struct, structs
from psycopg import sql

from tailrace.model.errors import (
    InvalidRequestError,
    SourceError,
    SourceStateError,
    SourceUnavailableError,
    UnknownTableError,
)
from tailrace.model.number import SchemaId
from tailrace.model.table import TableName, TableSchema
from tailrace.source.postgres.catalog import PublishedTable
from tailrace.source.postgres.commit_watch import CommitWatch, Look, Seen
from tailrace.source.postgres.failure import translated
from tailrace.source.postgres.lane import LaneConnection
from tailrace.source.postgres.options import PostgresSettings
from tailrace.source.postgres.pgoutput import Cells
from tailrace.source.postgres.position import parse_lsn
from tailrace.source.postgres.table_shape import DEFAULT_SCHEMA, TableShape, schema_of, shape_of

__all__ = ["ReadConnection", "ReadableTable", "cells_of", "quoted"]

_SETTINGS = (
    # A policy of the database would hide rows without a word: with this, it is an error.
    "SET row_security = off",
    # What we write to have the log flushed waits for no standby.
    "SET synchronous_commit = local",
    "SET jit = off",
    "SET statement_timeout = 0",
    "SET idle_in_transaction_session_timeout = '2min'",
)
_BEGIN = sql.SQL("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
_ROLLBACK = sql.SQL("ROLLBACK")

_CATALOG = """
    SELECT COALESCE(sum(hashtextextended(text, 0)), 0)::text FROM (
        SELECT concat_ws(' ', attrelid, attnum, attname, a.xmin, relname, relnamespace, relkind, relreplident) AS text
        FROM pg_attribute a JOIN pg_class c ON c.oid = attrelid
        WHERE attnum > 0 AND relkind IN ('r', 'p', 'v', 'm', 'f') AND c.oid >= 16384
            AND relnamespace NOT IN (SELECT oid FROM pg_namespace WHERE starts_with(nspname::text, 'pg_temp'))
        UNION ALL SELECT concat_ws(' ', 'index', indexrelid, indrelid, i.xmin) FROM pg_index i
            JOIN pg_class c ON c.oid = indexrelid WHERE indexrelid >= 16384
            AND relnamespace NOT IN (SELECT oid FROM pg_namespace WHERE starts_with(nspname::text, 'pg_t'))
        UNION ALL SELECT concat_ws(' ', 'schema', oid, nspname) FROM pg_namespace WHERE oid >= 16384
            AND NOT starts_with(nspname::text, 'pg_t')
        UNION ALL SELECT concat_ws(' ', 'label', oid, xmin) FROM pg_enum
        UNION ALL SELECT concat_ws(' ', 'publication', oid, xmin) FROM pg_publication
        UNION ALL SELECT concat_ws(' ', 'published', oid, xmin) FROM pg_publication_rel) t"""
"""Names the version of the schema. A row of the catalog has another `xmin` after each change, also one back."""

_LOOK = f"""
    SELECT pg_current_snapshot()::text, pg_current_wal_insert_lsn()::text, pg_current_wal_flush_lsn()::text,
        current_setting('wal_block_size')::int, ({_CATALOG})"""

_PAGE_HEAD_BYTES = 40
"""Longest head of a page of the write-ahead log: no record ends within."""

_FLUSH_WAIT_S = 0.01
"""How long a place that is not on disk yet may take, before we have it flushed."""

_AGAIN_S = 0.002
"""Pause before a transaction is begun again that saw a later commit without an earlier one."""

_ESCAPED = re.compile(rb"\\(.)", re.DOTALL)
_ESCAPES = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}


class ReadableTable(Struct, frozen=True):
    """How the rows of a table are selected, and made keys and images of."""

    schema: TableSchema
    shape: TableShape
    path: str
    columns: tuple[str, ...]
    key: tuple[str, ...]
    """The columns of the key, quoted; empty where the table has none."""

    key_types: tuple[str, ...]
    where: str
    """The row filter of the publication; empty where it has none."""

    catalog: str
    known: TableSchema | None
    """What it was made of: it is made again when one of these is another."""

    def key_text(self, cells: Cells) -> str:
        """Return a key in its natural JSON form, of the cells of the key alone."""
        places = [self.columns.index(name) for name in self.key]
        whole: list[Any] = [None] * len(self.columns)
        for place, cell in zip(places, cells, strict=True):
            whole[place] = cell
        return self.shape.key(whole).decode()

    def require_key(self) -> None:
        """Refuse a table whose rows have no key.

        Raises:
            InvalidRequestError: It has no key.
        """
        if not self.key:
            raise InvalidRequestError(
                f"table {self.schema.table.wire!r} has no key by which its rows could be divided: give it a primary "
                "key, or a unique index as its replica identity"
            )


class ReadConnection(LaneConnection):
    """Reads rows of captured tables. For one thread at a time."""

    def __init__(self, source: str, url: str, settings: PostgresSettings, watch: CommitWatch) -> None:
        super().__init__(url, settings)
        self._source = source
        self._publication = settings.publication
        self._watch = watch
        self._plans: dict[TableName, ReadableTable] = {}
        for statement in _SETTINGS:
            self.run(sql.SQL(statement))

    # What is committed

    def look(self) -> tuple[Seen, bool]:
        """Return what a transaction sees that begins now, and whether all of it is on the server's disk."""
        if self.rows("SELECT pg_is_in_recovery()")[0][0]:
            raise SourceUnavailableError("the server is a standby: rows are read from the primary")
        ((snapshot, inserted, flushed, page_bytes, catalog),) = self.rows(_LOOK)
        _, xmax, running = snapshot.split(":")
        lsn = parse_lsn(inserted)
        if lsn % page_bytes <= _PAGE_HEAD_BYTES:  # the next record begins behind a head, the last one ended before it
            lsn -= lsn % page_bytes
        numbers = frozenset(map(int, running.split(","))) if running else frozenset()
        return Seen(int(xmax), numbers, lsn, catalog), parse_lsn(flushed) >= lsn

    def await_capture(self, deadline_s: float, stopping: threading.Event) -> Seen:
        """Return what is committed now, once capture has received it. Outside of transactions.

        Raises:
            SourceUnavailableError: It did not in time.
        """
        seen, flushed = self.look()
        waited = self._watch.wait(seen.lsn, min(deadline_s, time.monotonic() + _FLUSH_WAIT_S), stopping)
        if not waited and not flushed:
            self._flush()
        if not waited and not self._watch.wait(seen.lsn, deadline_s, stopping):
            raise SourceUnavailableError("capture has not received yet what is committed: try again later")
        return seen

    def _flush(self) -> None:
        """Have the server flush its log: what is no commit may wait there for long, and is sent only from the disk."""
        with contextlib.suppress(SourceStateError, SourceUnavailableError):
            self.rows("SELECT pg_logical_emit_message(true, 'tailrace', '')")

    @contextlib.contextmanager
    def reading(
        self, table: TableName, deadline_s: float, stopping: threading.Event
    ) -> Iterator[tuple[Look, ReadableTable]]:
        """Begin a transaction that sees the log up to a place, and give that place and the table.

        The lock comes first: a truncation or a rewrite that is committed after a transaction began to see would show it
        an empty table.
        """
        while True:
            self.await_capture(deadline_s, stopping)
            with self._watch.reading():
                self.run(_BEGIN)
                try:
                    self._lock(table, deadline_s)
                    seen, _ = self.look()
                    wait_s = min(deadline_s, time.monotonic() + 1.0)
                    found = self._watch.cut(seen) if self._watch.wait(seen.lsn, wait_s, stopping) else None
                    if found is not None:
                        yield found, self.plan(table, seen.catalog)
                        return
                finally:
                    self._end()
            if stopping.wait(_AGAIN_S) or time.monotonic() > deadline_s:
                raise SourceUnavailableError(
                    "transactions become visible in another order than they were committed in, as while a synchronous "
                    "standby is away: try again later"
                )

    def _end(self) -> None:
        if not self._connection.closed:
            self.run(_ROLLBACK)

    def _lock(self, table: TableName, deadline_s: float) -> None:
        """Keep a table from being truncated, rewritten or dropped."""
        timeout_ms = max(1, int((deadline_s - time.monotonic()) * 1000))
        self.run(sql.SQL(f"SET LOCAL lock_timeout = {timeout_ms}"))
        try:
            self.run(sql.SQL(f"LOCK TABLE {_path(table)} IN ACCESS SHARE MODE"))
        except (SourceStateError, SourceUnavailableError) as error:
            if isinstance(error.__cause__, psycopg.errors.UndefinedTable | psycopg.errors.InvalidSchemaName):
                raise UnknownTableError(table.source, table.wire) from error
            raise _unreadable(error) from error.__cause__

    # Tables

    def plan(self, table: TableName, catalog: str = "") -> ReadableTable:
        """Return how a table is read. `catalog` names the version of the schema that this transaction sees.

        Raises:
            UnknownTableError: There is no such table, or it is not captured.
        """
        known = self._watch.find_schema(table)
        plan = self._plans.get(table)
        if plan is not None and catalog and plan.catalog == catalog and plan.known is known:
            return plan
        found = self._published_table(table)
        if found is None:
            raise UnknownTableError(table.source, table.wire)
        (relation,) = self.relations([found])
        facts = self.facts(relation, {})
        schema = schema_of(self._source, relation, facts)
        if known is not None:
            # Until the stream describes the table as it is now, the version that it will have is the next one.
            same = structs.replace(known, version=1) == schema
            schema = known if same else structs.replace(schema, version=known.version + 1)
        types = dict(
            zip((column.name for column in relation.columns), self._cast_types(found.oid, schema), strict=True)
        )
        kind, where = self._kind_and_filter(found, table)
        made = ReadableTable(
            schema=schema,
            shape=shape_of(schema, SchemaId(0), relation, facts),
            path=f"{'' if kind == 'p' else 'ONLY '}{_path(table)}",
            columns=tuple(quoted(column.name) for column in schema.columns),
            key=tuple(map(quoted, schema.key)),
            key_types=tuple(types[name] for name in schema.key),
            where=where,
            catalog=catalog,
            known=known,
        )
        self._plans[table] = made
        return made

    def _published_table(self, table: TableName) -> PublishedTable | None:
        columns = "attnames::text[]" if self.version >= 150000 else "NULL::text[]"
        found = self._tables(
            f"""SELECT schemaname, tablename, {columns} FROM pg_publication_tables
            WHERE pubname = %s AND schemaname = %s AND tablename = %s""",
            [self._publication, table.schema or DEFAULT_SCHEMA, table.name],
        )
        return found[0] if found else None

    def _kind_and_filter(self, found: PublishedTable, table: TableName) -> tuple[str, str]:
        """Return of what kind a table is, and the condition of rows that the publication has."""
        kind = str(self.rows("SELECT relkind FROM pg_class WHERE oid = %s", [found.oid])[0][0])
        if self.version < 150000:
            return kind, ""
        query = """SELECT rowfilter FROM pg_publication_tables
            WHERE pubname = %s AND schemaname = %s AND tablename = %s"""
        ((where,),) = self.rows(query, [self._publication, table.schema or DEFAULT_SCHEMA, table.name])
        return kind, str(where or "")

    def _cast_types(self, oid: int, schema: TableSchema) -> list[str]:
        """Return the types of columns without modifiers: with those, a cast would cut values off."""
        query = """SELECT format_type(atttypid, -1) FROM unnest(%s::text[]) WITH ORDINALITY n(name, place)
            JOIN pg_attribute ON attrelid = %s AND attname = n.name ORDER BY place"""
        return [str(text) for (text,) in self.rows(query, [[column.name for column in schema.columns], oid])]

    # Rows

    def copied(self, query: str) -> Generator[bytes, None, None]:
        """Yield the rows of a query as lines of COPY. Whoever stops early ends the transaction.

        Raises:
            SourceStateError, SourceUnavailableError: The server refuses, or is away.
        """
        try:
            with translated(), self._connection.cursor() as cursor:
                statement = sql.SQL(f"COPY ({query}) TO STDOUT")
                with cursor.copy(statement) as copy:
                    for data in copy:
                        yield bytes(data)
        except SourceStateError as error:
            raise _unreadable(error) from error.__cause__


def _unreadable(error: SourceError) -> SourceError:
    """Return an error of reading a table with the rights that are needed, where it is those that lack."""
    cause = error.__cause__
    if not isinstance(cause, psycopg.errors.InsufficientPrivilege):
        return error
    return SourceUnavailableError(
        f"PostgreSQL: {cause.diag.message_primary}; to read rows, the role needs GRANT SELECT ON the table, and where "
        "the table has policies, BYPASSRLS"
    )


def cells_of(line: bytes, count: int) -> Cells:
    """Return the cells of a line of COPY."""
    if not count:
        return []
    cells = line[:-1].split(b"\t")
    return [_plain(cell) for cell in cells] if b"\\" in line else cells  # type: ignore[return-value]


def _plain(cell: bytes) -> bytes | None:
    if b"\\" not in cell:
        return cell
    return None if cell == b"\\N" else _ESCAPED.sub(_unescaped, cell)


def _unescaped(match: re.Match[bytes]) -> bytes:
    return _ESCAPES.get(match[1], match[1])


def quoted(name: str) -> str:
    """Return a name as SQL."""
    return '"' + name.replace('"', '""') + '"'


def _path(table: TableName) -> str:
    return f"{quoted(table.schema or DEFAULT_SCHEMA)}.{quoted(table.name)}"
