"""SQLite databases as sinks."""

# ruff: noqa: S608 - names are quoted, values are given apart

import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.model.errors import SinkError, SinkRefusedError, SinkUnavailableError
from tailrace.pipeline.evolve import fitted
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

_TABLE_INFO = "SELECT name, type FROM pragma_table_info(?)"

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

    def canonical(self, table: str) -> str:
        """Return the name in small letters: ASCII letters are not distinguished by case."""
        return super().canonical(table.encode().lower().decode())

    def columns(self, table: str) -> pa.Schema | None:
        """Return the columns of a table."""
        with self._errors():
            found = self._run(_TABLE_INFO, [table])
        return pa.schema([(name, _arrow(type_)) for name, type_ in found]) if found else None

    def key(self, table: str) -> list[str]:
        """Return the columns of the primary key."""
        with self._errors():
            found = self._run("SELECT name FROM pragma_table_info(?) WHERE pk ORDER BY pk", [table])
        return [name for (name,) in found]

    def retype(self, table: str, columns: pa.Schema, names: Sequence[str]) -> None:
        """Make the table again: SQLite cannot change a column. Its indexes and triggers come along.

        Values are written as they would come now: a key in another form would not be found again.
        """
        with self._errors():
            declared: dict[str, str] = dict(self._run(_TABLE_INFO, [table]))
            extras = self._run(
                "SELECT sql FROM sqlite_schema WHERE tbl_name = ? AND type IN ('index', 'trigger') AND sql IS NOT NULL",
                [table],
            )
            key = self.key(table)
            fresh = f"_tailrace_new_{table}"
            types = {
                name: _declared(columns.field(name).type) if name in names else declared[name] for name in declared
            }
            parts = [f"{self._quoted(name)} {type_}" for name, type_ in types.items()]
            parts += [f"PRIMARY KEY ({self._listed(key)})"] if key else []
            self._run(f"CREATE TABLE {self._quoted(fresh)} ({', '.join(parts)})")
            changed = {name: (_arrow(declared[name]), columns.field(name).type) for name in names}
            self._move(table, fresh, list(types), changed)
            self._run(f"DROP TABLE {self._quoted(table)}")
            self._run("PRAGMA legacy_alter_table=ON")  # else views of the table, which is not there now, are errors
            self._run(f"ALTER TABLE {self._quoted(fresh)} RENAME TO {self._quoted(table)}")
            self._run("PRAGMA legacy_alter_table=OFF")
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

    def held(self, table: str, keys: pa.Table, columns: pa.Schema, *, open_versions: bool) -> pa.Table:
        """Return columns of the rows with these keys."""
        still = " AND valid_to_offset IS NULL" if open_versions else ""
        listed = self._listed(columns.names)
        query = f"SELECT {listed} FROM {self._named(table)} WHERE {self._same(keys.column_names)}{still}"
        with self._errors():
            return self._table([row for key in _values(keys) for row in self._run(query, key)], columns)

    def _run(self, statement: str, values: Sequence[Any] | None = None) -> Sequence[Any]:
        return self._connected().execute(statement, values or ()).fetchall()

    def _move(
        self, table: str, fresh: str, names: Sequence[str], changed: Mapping[str, tuple[pa.DataType, pa.DataType]]
    ) -> None:
        """Copy all rows; the columns that are named change from one type to the other."""
        insert = f"INSERT INTO {self._quoted(fresh)} ({self._listed(names)}) VALUES ({', '.join('?' * len(names))})"
        with self._reading(f"SELECT {self._listed(names)} FROM {self._quoted(table)}") as cursor:
            while rows := cursor.fetchmany(_ROWS_AT_ONCE_MAX):
                cells = dict(zip(names, zip(*rows, strict=True), strict=True))
                for name, (old, new) in changed.items():
                    column = pa.table({name: self._column(cells[name], old)})
                    cells[name] = _plain(fitted(column, pa.schema([(name, new)]))[name]).to_pylist()
                self._connected().executemany(insert, zip(*cells.values(), strict=True))

    def _run_many(self, statement: str, rows: pa.Table) -> None:
        with self._errors():
            self._connected().executemany(statement, _values(rows))

    def _values_of(self, rows: pa.Table) -> str:
        return f"({self._listed(rows.column_names)}) VALUES ({', '.join('?' * rows.num_columns)})"

    def _same(self, key: Sequence[str]) -> str:
        return " AND ".join(f"{self._quoted(name)} = ?" for name in key)

    @contextmanager
    def _reading(self, query: str) -> Iterator[Any]:
        yield self._connected().execute(query)  # not closed here: who reads no further may be another thread

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
        return SinkRefusedError(f"the SQLite database {path} cannot be opened: name a file in an existing directory")
    return SinkRefusedError(f"SQLite refused it ({name})")


def _declared(type_: pa.DataType) -> str:
    """Return the declared type of a column."""
    return f"DECIMAL TEXT({type_.precision},{type_.scale})" if pa.types.is_decimal128(type_) else _NAMES[type_]


def _arrow(declared: str) -> pa.DataType:
    """Return the type of a column that we declared, null of another one."""
    decimal = _DECIMAL.fullmatch(declared)
    return pa.decimal128(int(decimal[1]), int(decimal[2])) if decimal else _TYPES.get(declared.upper(), pa.null())


def _values(rows: pa.Table) -> Iterator[Sequence[Any]]:
    """Return rows as SQLite takes them.

    Raises:
        SinkRefusedError: A number is none.
    """
    plain = [_plain(rows[name]) for name in rows.column_names]
    for place in range(0, rows.num_rows, _ROWS_AT_ONCE_MAX):
        yield from zip(*(column.slice(place, _ROWS_AT_ONCE_MAX).to_pylist() for column in plain), strict=True)


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column as SQLite takes it: decimals, dates and times as text."""
    if pa.types.is_floating(column.type) and pc.any(pc.is_nan(column)).as_py():
        raise SinkRefusedError("SQLite has no NaN: it would become null")
    return column if _is_plain(column.type) else column.cast(pa.string())


def _is_plain(type_: pa.DataType) -> bool:
    """Tell whether SQLite keeps the values of a type as they are."""
    return not (pa.types.is_decimal(type_) or pa.types.is_date(type_) or pa.types.is_timestamp(type_))
