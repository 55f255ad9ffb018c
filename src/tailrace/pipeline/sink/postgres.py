"""PostgreSQL databases as sinks."""

# ruff: noqa: S608 - names are quoted, values are given apart

import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.csv
from msgspec import Struct

from tailrace.model.errors import SinkError, SinkRefusedError, SinkUnavailableError
from tailrace.pipeline.fold import OFFSET
from tailrace.pipeline.json_column import cut_lists, flat
from tailrace.pipeline.sink.server_tables import ServerTables
from tailrace.pipeline.sink.silence import LIBPQ_OPTIONS
from tailrace.pipeline.sink.sql import ARRIVALS, BATCHES, DECLARED, declared_types

__all__ = ["PostgresDatabase", "PostgresOptions"]

_CONNECT_TIMEOUT_S = 10
_ROWS_AT_ONCE_MAX = 50_000
_NAME_BYTES_MAX = 63
"""PostgreSQL cuts longer names without an error, and does not find them again."""


_TYPES = {
    "bigint": pa.int64(),
    "double precision": pa.float64(),
    "text": pa.string(),
    "bytea": pa.binary(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "timestamp without time zone": pa.timestamp("us"),
    "timestamp with time zone": pa.timestamp("us", tz="UTC"),
}
"""Types of columns that we make; `numeric`, arrays and the types of `_NATIVE` besides."""

_NAMES = {type_: name for name, type_ in _TYPES.items()}

_NATIVE = re.compile(
    r"interval|inet|cidr|macaddr8?|bit\(\d{1,8}\)|bit varying(\(\d{1,8}\))?|(int4|int8|num|ts|date)range"
)
"""Types whose values are text in Arrow, and that write a text as the source has written it. Those with times that have
a zone are not among them: their text depends on the session.
"""

_OURS = "text for tailrace"
"""Comment of a column that has such a type because we have made it so."""

_NUMERIC = re.compile(r"numeric\((\d+),(\d+)\)")
_ARRAY = re.compile(r"(.*)\[\]")


class PostgresOptions(Struct, frozen=True):
    """Where the database is. The password is not shown."""

    host: str
    port: int
    user: str
    password: str
    database: str
    schema: str = "public"
    sslmode: str = "prefer"

    def __repr__(self) -> str:
        return f"PostgreSQL at {self.host}:{self.port}, database {self.database!r}"


class PostgresDatabase(ServerTables):
    """One PostgreSQL database. Rows come by COPY into a temporary table and from there, by one statement, in place."""

    has_arrays = True
    failures = psycopg.Error
    duplicate = psycopg.errors.UniqueViolation

    def __init__(self, options: PostgresOptions) -> None:
        self._options = options
        self._connection: psycopg.Connection[Any] | None = None

    def connect(self) -> None:
        """Connect."""
        self.close()
        options = self._options
        with self._errors():
            self._connection = psycopg.connect(
                host=options.host,
                port=options.port,
                user=options.user,
                password=options.password,
                dbname=options.database,
                sslmode=options.sslmode,
                connect_timeout=_CONNECT_TIMEOUT_S,
                application_name="tailrace",
                client_encoding="UTF8",
                autocommit=True,
                **LIBPQ_OPTIONS,
            )
            self._run("SET synchronous_commit = on")
            self._run("SET client_min_messages = warning")
            self._run("SET datestyle = 'ISO, MDY'")
            self._run("SET timezone = 'UTC'")
            self._run("SET intervalstyle = 'postgres'")
            if not self._exists(BATCHES):
                self._create_batches()

    def close(self) -> None:
        """Disconnect."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Run what is inside as one transaction."""
        with self._errors(), self._connected().transaction():
            yield

    def columns(self, table: str) -> pa.Schema | None:
        """Return the columns of a table."""
        with self._errors():
            found = self._run(
                "SELECT c.column_name, c.data_type, c.numeric_precision, c.numeric_scale,"
                " format_type(a.atttypid, a.atttypmod), a.attndims, col_description(a.attrelid, a.attnum)"
                " FROM information_schema.columns c JOIN pg_attribute a ON a.attname = c.column_name"
                " WHERE c.table_schema = %s AND c.table_name = %s AND a.attrelid = to_regclass(%s)"
                " ORDER BY c.ordinal_position",
                [self._options.schema, table, self._named(table)],
            )
        return pa.schema([_field(*column) for column in found]) if found else None

    def create(self, table: str, columns: pa.Schema, key: Sequence[str]) -> None:
        """Make a table."""
        super().create(table, columns, key)
        self._mark_native(table, list(columns))

    def add_columns(self, table: str, columns: Sequence[pa.Field]) -> None:
        """Add columns."""
        super().add_columns(table, columns)
        self._mark_native(table, columns)

    def _mark_native(self, table: str, columns: Sequence[pa.Field]) -> None:
        """Mark columns of types of PostgreSQL's own as ours: those that someone else made are never changed."""
        with self._errors():
            for field in columns:
                if _native(field):
                    self._run(f"COMMENT ON COLUMN {self._named(table)}.{self._quoted(field.name)} IS '{_OURS}'")

    def key(self, table: str) -> list[str]:
        """Return the columns of the primary key."""
        with self._errors():
            found = self._run(
                "SELECT a.attname FROM pg_index i JOIN pg_attribute a"
                " ON a.attrelid = i.indrelid AND a.attnum = ANY(i.indkey)"
                " WHERE i.indisprimary AND i.indrelid = to_regclass(%s)",
                [self._named(table)],
            )
        return [name for (name,) in found]

    def retype(self, table: str, columns: pa.Schema, names: Sequence[str]) -> None:
        """Change the types of columns. Arrays become the text of a JSON array, as PostgreSQL writes it."""
        present = self.columns(table)
        assert present is not None
        parts = []
        for name in names:
            type_, column = _declared(columns.field(name).type), self._quoted(name)
            text = f"{column}::text"
            if pa.types.is_list(present.field(name).type) and not pa.types.is_list(columns.field(name).type):
                text = f"to_json({column})::text"
            value = f"convert_to({text}, 'UTF8')" if type_ == "bytea" else f"{text}::{type_}"
            value = f"{column}::int" if type_ == "bigint" else value
            parts.append(f"ALTER COLUMN {column} TYPE {type_} USING {value}")
        with self._errors():
            self._run(f"ALTER TABLE {self._named(table)} {', '.join(parts)}")

    def _deletion(self, target: str, key: pa.Schema) -> str:
        return (
            f"DELETE FROM {target} t USING {ARRIVALS} s"
            f" WHERE {self._same(key)} AND (t.{OFFSET} IS NULL OR t.{OFFSET} <= s.{OFFSET})"
        )

    def _upsertion(self, target: str, names: Sequence[str], key: pa.Schema) -> str:
        others = [self._quoted(name) for name in names if name not in key.names]
        return (
            f"INSERT INTO {target} AS t ({self._listed(names)}) SELECT {self._listed(names)} FROM {ARRIVALS}"
            f" ON CONFLICT ({self._listed(key.names)}) DO UPDATE SET"
            f" {', '.join(f'{name} = excluded.{name}' for name in others)}"
            f" WHERE t.{OFFSET} IS NULL OR t.{OFFSET} <= excluded.{OFFSET}"
        )

    def _closing(self, target: str, key: pa.Schema) -> str:
        return (
            f"UPDATE {target} t SET valid_to = s.valid_to, valid_to_offset = s.valid_to_offset"
            f" FROM {ARRIVALS} s WHERE {self._same(key)} AND t.valid_to_offset IS NULL"
        )

    def _empty(self, target: str, listed: str) -> Sequence[str]:
        statement = f"CREATE TEMPORARY TABLE {ARRIVALS} ON COMMIT DROP AS SELECT {listed} FROM {target} WITH NO DATA"
        return [f"DROP TABLE IF EXISTS pg_temp.{ARRIVALS}", statement]

    def _fill(self, target: str, rows: pa.Table) -> None:
        """Copy rows as CSV, in which an empty text is quoted and null is not."""
        plain = pa.table([_plain(rows[name]) for name in rows.column_names], names=rows.column_names)
        statement = f"COPY {target} ({self._listed(rows.column_names)}) FROM STDIN (FORMAT csv)"
        with self._connected().cursor().copy(statement.encode()) as copy:
            for batch in plain.to_batches(max_chunksize=_ROWS_AT_ONCE_MAX):
                text = io.BytesIO()
                pyarrow.csv.write_csv(batch, text, pyarrow.csv.WriteOptions(include_header=False))
                copy.write(text.getbuffer())

    def _create_batches(self) -> None:
        """Make the table of batches. Where someone else makes it at the same time, `IF NOT EXISTS` does not help."""
        with suppress(psycopg.errors.UniqueViolation):
            self._run(
                f"CREATE TABLE IF NOT EXISTS {self._named(BATCHES)} ("
                "pipeline text NOT NULL, number bigint NOT NULL, offsets text NOT NULL, highest text NOT NULL,"
                " changes bigint NOT NULL,"
                " applied_at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (pipeline, number))"
            )

    def _exists(self, table: str) -> bool:
        ((found,),) = self._run("SELECT to_regclass(%s)", [self._named(table)])
        return found is not None

    def _named(self, table: str) -> str:
        return f"{self._quoted(self._options.schema)}.{self._quoted(table)}"

    def _quoted(self, name: str) -> str:
        if len(name.encode()) > _NAME_BYTES_MAX:
            raise SinkRefusedError(f"PostgreSQL names have at most {_NAME_BYTES_MAX} bytes: {name!r}")
        return '"' + name.replace('"', '""') + '"'

    def _declared(self, field: pa.Field, key: pa.Schema) -> str:
        return _native(field) or _declared(field.type)

    def _selected(self, field: pa.Field) -> str:
        is_text = pa.types.is_null(field.type) or pa.types.is_string(field.type)
        return f"{self._quoted(field.name)}::text" if is_text else self._quoted(field.name)

    def _connected(self) -> "psycopg.Connection[Any]":
        if self._connection is None:
            raise SinkUnavailableError(f"{self._options!r} is not connected")
        return self._connection

    def _run(self, statement: str, values: Sequence[Any] | None = None) -> Sequence[Any]:
        cursor = self._connected().execute(statement.encode(), values)
        return cursor.fetchall() if cursor.description else []

    @contextmanager
    def _reading(self, query: str) -> Iterator[Any]:
        connection = self._connected()
        with self.transaction(), connection.cursor(name="tailrace_rows", binary=True) as cursor:
            yield cursor.execute(query.encode())

    def _failure(self, error: psycopg.Error) -> SinkError:
        return _sink_error(self._options, error)


_UNAVAILABLE = ("08", "25006", "25P", "40", "53", "55", "57", "58")
"""What SQLSTATE begins with where another try may answer: connections, a server that is only read for now, limits of
time, deadlocks, resources, locks, shutdowns, disks.
"""


def _sink_error(options: PostgresOptions, error: psycopg.Error) -> SinkError:
    """Return the error of the sink for one of PostgreSQL."""
    state = error.sqlstate or ""
    if state.startswith("28") or "authentication failed" in str(error):
        return SinkRefusedError(f"{options!r} refuses the user {options.user!r} or the password: fix the sink's URL")
    if state.startswith("3D") or ("does not exist" in str(error) and not state):
        return SinkRefusedError(f"{options!r} does not exist: create it, or fix the sink's URL")
    if state.startswith(_UNAVAILABLE) or (not state and isinstance(error, psycopg.OperationalError)):
        return SinkUnavailableError(f"{options!r} cannot be reached, or is busy ({state or type(error).__name__})")
    column = f", column {error.diag.column_name!r}" if error.diag.column_name else ""
    rule = f", constraint {error.diag.constraint_name!r}" if error.diag.constraint_name else ""
    return SinkRefusedError(f"PostgreSQL refused it ({state} {type(error).__name__}{column}{rule})")


def _declared(type_: pa.DataType) -> str:
    """Return the type of a column in PostgreSQL."""
    if pa.types.is_list(type_):
        return f"{_declared(type_.value_type)}[]"
    return f"numeric({type_.precision},{type_.scale})" if pa.types.is_decimal128(type_) else _NAMES[type_]


def _native(field: pa.Field) -> str:
    """Return the type of PostgreSQL's own that a column of text may have; empty for none."""
    declared = declared_types(pa.schema([field])).get(field.name, "")
    return declared if _NATIVE.fullmatch(declared) else ""


def _field(
    name: str,
    type_: str,
    precision: int | None,
    scale: int | None,
    formatted: str,
    dimensions: int,
    comment: str | None,
) -> pa.Field:
    """Return a column: of a type that we could have made, of text with the name of its type, or of null."""
    if array := _ARRAY.fullmatch(formatted):
        numeric = _NUMERIC.fullmatch(array[1])
        made = _arrow(*(("numeric", int(numeric[1]), int(numeric[2])) if numeric else (array[1], None, None)))
        for _ in range(0 if pa.types.is_null(made) else max(dimensions, 1)):
            made = pa.list_(made)
        return pa.field(name, made)
    if comment == _OURS and _NATIVE.fullmatch(formatted):
        return pa.field(name, pa.string(), metadata={DECLARED: formatted})
    return pa.field(name, _arrow(type_, precision, scale))


def _arrow(type_: str, precision: int | None, scale: int | None) -> pa.DataType:
    """Return the type of a column that we could have made, null of another one."""
    if type_ == "numeric" and precision is not None and precision <= 38:
        return pa.decimal128(precision, scale or 0)
    return _TYPES.get(type_, pa.null())


def _plain(column: pa.ChunkedArray) -> Any:
    """Return a column as CSV can hold it: bytes become PostgreSQL's hexadecimal text, and lists its arrays."""
    if pa.types.is_list(column.type):
        return pa.array(_arrays(column), pa.string())
    if not pa.types.is_binary(column.type):
        return column
    return pa.array([None if value is None else "\\x" + value.hex() for value in column.to_pylist()], pa.string())


def _arrays(column: Any) -> list[str | None]:
    """Return lists as PostgreSQL writes arrays: each item in quotation marks, but nulls and inner arrays."""
    items = flat(column)
    if pa.types.is_list(items.type):
        texts = _arrays(items)
    else:
        plain = _plain(items).cast(pa.string()).to_pylist()
        texts = [None if text is None else f'"{_ESCAPED.sub(_BACKSLASH, text)}"' for text in plain]
    lists = cut_lists(column, texts)
    return [None if some is None else f"{{{','.join(text or 'NULL' for text in some)}}}" for some in lists]


_ESCAPED = re.compile(r'["\\]')
_BACKSLASH = r"\\\g<0>"
