"""SQLite databases as sinks."""

# ruff: noqa: S608 - names are quoted, values are given apart

import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from tailrace.model.errors import SinkError, SinkRefusedError, SinkUnavailableError
from tailrace.pipeline.fold import OFFSET
from tailrace.pipeline.sink.sql import BATCHES
from tailrace.pipeline.sink.sql_tables import SqlTables

__all__ = ["SqliteDatabase"]

_WAIT_S = 10.0
"""How long a writer waits for another one."""

_ROWS_AT_ONCE_MAX = 50_000

_TYPES = {
    "INTEGER": pa.int64(),
    "REAL": pa.float64(),
    "TEXT": pa.string(),
    "BLOB": pa.binary(),
    "BOOLEAN": pa.bool_(),
    "DATE TEXT": pa.date32(),
    "DATETIME TEXT": pa.timestamp("us"),
    "TIMESTAMP TEXT": pa.timestamp("us", tz="UTC"),
}
"""Declared types of columns that we make. SQLite keeps as text what has TEXT in its type, and rounds none of it."""

_NAMES = {type_: name for name, type_ in _TYPES.items()}

_DECIMAL = re.compile(r"DECIMAL TEXT\((\d+),(\d+)\)")


class SqliteDatabase(SqlTables):
    """One SQLite file, made where it is missing. Another writer is waited for, then the sink is unavailable."""

    failures = sqlite3.Error
    duplicate = sqlite3.IntegrityError
    mark = "?"

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection: sqlite3.Connection | None = None

    def connect(self) -> None:
        """Open the file."""
        self.close()
        with self._errors():
            self._connection = sqlite3.connect(self._path, timeout=_WAIT_S, isolation_level=None)
            self._run("PRAGMA synchronous=FULL")
            with self.transaction():
                self._run(
                    f"CREATE TABLE IF NOT EXISTS {BATCHES} (pipeline TEXT NOT NULL, number INTEGER NOT NULL,"
                    " offsets TEXT NOT NULL, highest TEXT NOT NULL, changes INTEGER NOT NULL,"
                    " applied_at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP, PRIMARY KEY (pipeline, number))"
                )

    def close(self) -> None:
        """Close the file."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Begin by taking the write lock; end with everything or nothing."""
        with self._errors():
            self._run("BEGIN IMMEDIATE")
            try:
                yield
                self._run("COMMIT")
            except BaseException:
                if self._connection is not None and self._connection.in_transaction:
                    self._connection.rollback()
                raise

    def columns(self, table: str) -> pa.Schema | None:
        """Return the columns of a table."""
        with self._errors():
            found = self._run("SELECT name, type FROM pragma_table_info(?)", [table])
        return pa.schema([(name, _arrow(type_)) for name, type_ in found]) if found else None

    def key(self, table: str) -> list[str]:
        """Return the columns of the primary key."""
        with self._errors():
            found = self._run("SELECT name FROM pragma_table_info(?) WHERE pk ORDER BY pk", [table])
        return [name for (name,) in found]

    def retype(self, table: str, columns: pa.Schema, names: Sequence[str]) -> None:
        """Make the table anew: SQLite cannot change a column. Its indexes and triggers come along."""
        with self._errors():
            declared = dict(self._run("SELECT name, type FROM pragma_table_info(?)", [table]))
            extras = self._run(
                "SELECT sql FROM sqlite_schema WHERE tbl_name = ? AND type IN ('index', 'trigger') AND sql IS NOT NULL",
                [table],
            )
            key = self.key(table)
            fresh = f"_tailrace_{table}"
            types = {
                name: _declared(columns.field(name).type) if name in names else declared[name] for name in declared
            }
            parts = [f"{self._quoted(name)} {type_}" for name, type_ in types.items()]
            parts += [f"PRIMARY KEY ({self._listed(key)})"] if key else []
            self._run(f"CREATE TABLE {self._quoted(fresh)} ({', '.join(parts)})")
            listed = self._listed(types)
            self._run(f"INSERT INTO {self._quoted(fresh)} ({listed}) SELECT {listed} FROM {self._quoted(table)}")
            self._run(f"DROP TABLE {self._quoted(table)}")
            self._run(f"ALTER TABLE {self._quoted(fresh)} RENAME TO {self._quoted(table)}")
            for (statement,) in extras:
                self._run(statement)

    def insert(self, table: str, rows: pa.Table) -> None:
        """Add rows."""
        self._run_many(f"INSERT INTO {self._named(table)} {self._values_of(rows)}", rows)

    def delete(self, table: str, rows: pa.Table, key: Sequence[str]) -> None:
        """Remove rows."""
        self._run_many(
            f"DELETE FROM {self._named(table)} WHERE {self._same(key)} AND ({OFFSET} IS NULL OR {OFFSET} <= ?)",
            rows.select([*key, OFFSET]),
        )

    def upsert(self, table: str, rows: pa.Table, key: Sequence[str]) -> None:
        """Add or replace rows."""
        others = [self._quoted(name) for name in rows.column_names if name not in key]
        self._run_many(
            f"INSERT INTO {self._named(table)} AS t {self._values_of(rows)}"
            f" ON CONFLICT ({self._listed(key)}) DO UPDATE SET"
            f" {', '.join(f'{name} = excluded.{name}' for name in others)}"
            f" WHERE t.{OFFSET} IS NULL OR t.{OFFSET} <= excluded.{OFFSET}",
            rows,
        )

    def close_versions(self, table: str, closings: pa.Table, key: Sequence[str]) -> None:
        """Put an end to open versions."""
        self._run_many(
            f"UPDATE {self._named(table)} SET valid_to = ?, valid_to_offset = ?"
            f" WHERE {self._same(key)} AND valid_to_offset IS NULL",
            closings.select(["valid_to", "valid_to_offset", *key]),
        )

    def known(self, table: str, keys: pa.Table, key: Sequence[str]) -> pa.Table:
        """Return the last offset of each of these keys."""
        latest = "max(max(valid_from_offset, coalesce(valid_to_offset, 0)))"
        query = f"SELECT {latest} FROM {self._named(table)} WHERE {self._same(key)}"
        distinct = keys.group_by(list(key)).aggregate([])
        with self._errors():
            offsets = [self._run(query, row)[0][0] for row in _values(distinct)]
        return distinct.append_column("_known", pa.array(offsets, pa.int64()))

    def _run(self, statement: str, values: Sequence[Any] | None = None) -> Sequence[Sequence[Any]]:
        return self._connected().execute(statement, values or ()).fetchall()

    def _run_many(self, statement: str, rows: pa.Table) -> None:
        with self._errors():
            self._connected().executemany(statement, _values(rows))

    def _values_of(self, rows: pa.Table) -> str:
        return f"({self._listed(rows.column_names)}) VALUES ({', '.join('?' * rows.num_columns)})"

    def _same(self, key: Sequence[str]) -> str:
        return " AND ".join(f"{self._quoted(name)} = ?" for name in key)

    @contextmanager
    def _reading(self, query: str) -> Iterator[Any]:
        with closing(self._connected().execute(query)) as cursor:
            yield cursor

    def _connected(self) -> sqlite3.Connection:
        if self._connection is None:
            raise SinkUnavailableError(f"the SQLite database {self._path} is not open")
        return self._connection

    def _failure(self, error: sqlite3.Error) -> SinkError:
        return _sink_error(self._path, error)

    def _quoted(self, name: str) -> str:
        return '"' + name.replace('"', '""') + '"'

    def _declared(self, field: pa.Field, key: pa.Schema) -> str:
        return _declared(field.type)

    def _column(self, values: Sequence[Any], type_: pa.DataType) -> Any:
        """Return a column of what `_values` made of one."""
        if pa.types.is_null(type_) or _is_plain(type_):
            return super()._column(values, type_)
        return pa.array(values, pa.string()).cast(type_)


def _sink_error(path: Path, error: sqlite3.Error) -> SinkError:
    """Return the error of the sink for one of SQLite."""
    name = getattr(error, "sqlite_errorname", None) or type(error).__name__
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_FULL", "SQLITE_IOERR", "SQLITE_INTERRUPT")):
        return SinkUnavailableError(f"the SQLite database {path} is busy or the disk failed ({name})")
    if name.startswith("SQLITE_CANTOPEN"):
        return SinkRefusedError(
            f"the SQLite database {path} cannot be opened: name a file in a directory that is there"
        )
    return SinkRefusedError(f"SQLite refused it ({name})")


def _declared(type_: pa.DataType) -> str:
    """Return the declared type of a column."""
    return f"DECIMAL TEXT({type_.precision},{type_.scale})" if pa.types.is_decimal128(type_) else _NAMES[type_]


def _arrow(declared: str) -> pa.DataType:
    """Return the type of a column that we declared, null of another one."""
    decimal = _DECIMAL.fullmatch(declared)
    return pa.decimal128(int(decimal[1]), int(decimal[2])) if decimal else _TYPES.get(declared.upper(), pa.null())


def _values(rows: pa.Table) -> Iterator[Sequence[Any]]:
    """Return rows as SQLite takes them: decimals, dates and times as text."""
    columns = [rows[name] for name in rows.column_names]
    plain = [column if _is_plain(column.type) else column.cast(pa.string()) for column in columns]
    for place in range(0, rows.num_rows, _ROWS_AT_ONCE_MAX):
        yield from zip(*(column.slice(place, _ROWS_AT_ONCE_MAX).to_pylist() for column in plain), strict=True)


def _is_plain(type_: pa.DataType) -> bool:
    """Tell whether SQLite keeps the values of a type as they are."""
    return not (pa.types.is_decimal(type_) or pa.types.is_date(type_) or pa.types.is_timestamp(type_))
