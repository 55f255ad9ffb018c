"""PostgreSQL databases as sinks."""

# ruff: noqa: S608 (identifiers are quoted, values are bound)

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.csv
from msgspec import Struct

from tailrace.model.errors import SinkError, SinkRefusedError, SinkUnavailableError
from tailrace.pipeline.fold import OFFSET
from tailrace.pipeline.sink.base import Progress
from tailrace.pipeline.sink.progress import decode_columns, encode_columns
from tailrace.pipeline.sink.sql import BATCHES, BATCHES_KEPT

__all__ = ["PostgresDatabase", "PostgresOptions"]

_CONNECT_TIMEOUT_S = 10
_ROWS_AT_ONCE_MAX = 50_000
_STAGE = "_tailrace_stage"

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
"""Types of columns that we make; `numeric` besides."""

_NAMES = {type_: name for name, type_ in _TYPES.items()}


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


class PostgresDatabase:
    """One PostgreSQL database. Rows come by COPY into a temporary table and from there, by one statement, in place."""

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
                autocommit=True,
            )
            self._run("SET synchronous_commit = on")
            self._run("SET client_min_messages = warning")
            self._run("SET datestyle = 'ISO, MDY'")
            if not self._exists(BATCHES):
                self._run(
                    f"CREATE TABLE IF NOT EXISTS {self._named(BATCHES)} ("
                    "pipeline text NOT NULL, number bigint NOT NULL, offsets text NOT NULL, highest text NOT NULL,"
                    " changes bigint NOT NULL,"
                    " applied_at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (pipeline, number))"
                )

    def close(self) -> None:
        """Disconnect."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Run what is inside as one transaction."""
        if self._connection is None:
            raise SinkUnavailableError(f"{self._options!r} is not connected")
        with self._errors(), self._connection.transaction():
            yield

    def last_batch(self, pipeline: str) -> Progress | None:
        """Return the last batch of a pipeline."""
        with self._errors():
            found = self._run(
                f"SELECT number, offsets, highest FROM {self._named(BATCHES)} WHERE pipeline = %s"
                " ORDER BY number DESC LIMIT 1",
                [pipeline],
            ).fetchone()
        return None if found is None else decode_columns(*found)

    def note_batch(self, pipeline: str, progress: Progress, changes: int) -> None:
        """Note a batch; who notes the same one waits for our transaction to end, and has it refused then."""
        batches = self._named(BATCHES)
        with self._errors():
            self._run(
                f"DELETE FROM {batches} WHERE pipeline = %s AND number <= %s",
                [pipeline, progress.number - BATCHES_KEPT],
            )
            try:
                self._run(
                    f"INSERT INTO {batches} (pipeline, number, offsets, highest, changes) VALUES (%s, %s, %s, %s, %s)",
                    [pipeline, *encode_columns(progress), changes],
                )
            except psycopg.errors.UniqueViolation:
                raise SinkUnavailableError(f"somebody else has applied batch {progress.number}") from None

    def columns(self, table: str) -> pa.Schema | None:
        """Return the columns of a table."""
        with self._errors():
            found = self._run(
                "SELECT column_name, data_type, numeric_precision, numeric_scale FROM information_schema.columns"
                " WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position",
                [self._options.schema, table],
            ).fetchall()
        return pa.schema([(name, _arrow(*type_)) for name, *type_ in found]) if found else None

    def key(self, table: str) -> list[str]:
        """Return the columns of the primary key."""
        with self._errors():
            found = self._run(
                "SELECT a.attname FROM pg_index i JOIN pg_attribute a"
                " ON a.attrelid = i.indrelid AND a.attnum = ANY(i.indkey)"
                " WHERE i.indisprimary AND i.indrelid = to_regclass(%s)",
                [self._named(table)],
            ).fetchall()
        return [name for (name,) in found]

    def create(self, table: str, columns: pa.Schema, key: Sequence[str]) -> None:
        """Make a table."""
        parts = [f"{_quoted(field.name)} {_declared(field.type)}" for field in columns]
        parts += [f"PRIMARY KEY ({', '.join(map(_quoted, key))})"] if key else []
        with self._errors():
            self._run(f"CREATE TABLE {self._named(table)} ({', '.join(parts)})")

    def add_columns(self, table: str, columns: Sequence[pa.Field]) -> None:
        """Add columns."""
        parts = [f"ADD COLUMN {_quoted(field.name)} {_declared(field.type)}" for field in columns]
        with self._errors():
            self._run(f"ALTER TABLE {self._named(table)} {', '.join(parts)}")

    def retype(self, table: str, columns: pa.Schema, names: Sequence[str]) -> None:
        """Change the types of columns."""
        parts = []
        for name in names:
            type_, column = _declared(columns.field(name).type), _quoted(name)
            value = f"convert_to({column}::text, 'UTF8')" if type_ == "bytea" else f"{column}::text::{type_}"
            value = f"{column}::int" if type_ == "bigint" else value
            parts.append(f"ALTER COLUMN {column} TYPE {type_} USING {value}")
        with self._errors():
            self._run(f"ALTER TABLE {self._named(table)} {', '.join(parts)}")

    def insert(self, table: str, rows: pa.Table) -> None:
        """Add rows."""
        with self._errors():
            self._copy(self._named(table), rows)

    def delete(self, table: str, rows: pa.Table, key: Sequence[str]) -> None:
        """Remove rows."""
        if rows.num_rows:
            with self._errors():
                self._stage(table, rows)
                self._run(
                    f"DELETE FROM {self._named(table)} t USING {_STAGE} s"
                    f" WHERE {_same(key)} AND (t.{OFFSET} IS NULL OR t.{OFFSET} <= s.{OFFSET})"
                )

    def upsert(self, table: str, rows: pa.Table, key: Sequence[str]) -> None:
        """Add or replace rows."""
        if not rows.num_rows:
            return
        listed = ", ".join(map(_quoted, rows.column_names))
        others = [_quoted(name) for name in rows.column_names if name not in key]
        with self._errors():
            self._stage(table, rows)
            self._run(
                f"INSERT INTO {self._named(table)} AS t ({listed}) SELECT {listed} FROM {_STAGE}"
                f" ON CONFLICT ({', '.join(map(_quoted, key))}) DO UPDATE SET"
                f" {', '.join(f'{name} = excluded.{name}' for name in others)}"
                f" WHERE t.{OFFSET} IS NULL OR t.{OFFSET} <= excluded.{OFFSET}"
            )

    def close_versions(self, table: str, closings: pa.Table, key: Sequence[str]) -> None:
        """Put an end to open versions."""
        if closings.num_rows:
            with self._errors():
                self._stage(table, closings)
                self._run(
                    f"UPDATE {self._named(table)} t SET valid_to = s.valid_to, valid_to_offset = s.valid_to_offset"
                    f" FROM {_STAGE} s WHERE {_same(key)} AND t.valid_to_offset IS NULL"
                )

    def known(self, table: str, keys: pa.Table, key: Sequence[str]) -> pa.Table:
        """Return the last offset of each of these keys."""
        distinct = keys.group_by(list(key)).aggregate([])
        listed = ", ".join(f"t.{_quoted(name)}" for name in key)
        with self._errors():
            self._stage(table, distinct)
            found = self._run(
                f"SELECT {listed}, max(greatest(t.valid_from_offset, t.valid_to_offset))"
                f" FROM {self._named(table)} t JOIN {_STAGE} s ON {_same(key)} GROUP BY {listed}"
            ).fetchall()
        schema = pa.schema([*distinct.schema, ("_known", pa.int64())])
        columns = zip(*found, strict=True) if found else ([] for _ in schema)
        return pa.table(
            [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)], schema=schema
        )

    def read(self, table: str, columns: pa.Schema, *, open_versions: bool) -> Iterator[pa.RecordBatch]:
        """Return the rows of a table, as of one moment."""
        texts = {field.name for field in columns if pa.types.is_null(field.type)}
        listed = ", ".join(f"{_quoted(name)}::text" if name in texts else _quoted(name) for name in columns.names)
        where = " WHERE valid_to_offset IS NULL" if open_versions else ""
        types = [pa.string() if field.name in texts else field.type for field in columns]
        with self.transaction():
            assert self._connection is not None
            with self._connection.cursor(name="tailrace_rows", binary=True) as cursor:
                cursor.execute(f"SELECT {listed} FROM {self._named(table)}{where}".encode())
                while rows := cursor.fetchmany(_ROWS_AT_ONCE_MAX):
                    taken = zip(types, zip(*rows, strict=True), strict=True)
                    yield pa.record_batch([pa.array(values, type_) for type_, values in taken], names=columns.names)

    def _stage(self, table: str, rows: pa.Table) -> None:
        """Put rows into a temporary table with the columns that the table has for them."""
        listed = ", ".join(map(_quoted, rows.column_names))
        self._run(f"DROP TABLE IF EXISTS pg_temp.{_STAGE}")
        self._run(
            f"CREATE TEMPORARY TABLE {_STAGE} ON COMMIT DROP AS SELECT {listed} FROM {self._named(table)} WITH NO DATA"
        )
        self._copy(_STAGE, rows)

    def _copy(self, table: str, rows: pa.Table) -> None:
        """Copy rows as CSV, in which an empty text is quoted and null is not."""
        listed = ", ".join(map(_quoted, rows.column_names))
        plain = pa.table([_plain(rows[name]) for name in rows.column_names], names=rows.column_names)
        cursor = self._cursor()
        with cursor.copy(f"COPY {table} ({listed}) FROM STDIN (FORMAT csv)".encode()) as copy:
            for batch in plain.to_batches(max_chunksize=_ROWS_AT_ONCE_MAX):
                text = io.BytesIO()
                pyarrow.csv.write_csv(batch, text, pyarrow.csv.WriteOptions(include_header=False))
                copy.write(text.getbuffer())

    def _exists(self, table: str) -> bool:
        found = self._run("SELECT to_regclass(%s)", [self._named(table)]).fetchone()
        return found is not None and found[0] is not None

    def _named(self, table: str) -> str:
        return f"{_quoted(self._options.schema)}.{_quoted(table)}"

    def _cursor(self) -> "psycopg.Cursor[Any]":
        if self._connection is None:
            raise SinkUnavailableError(f"{self._options!r} is not connected")
        return self._connection.cursor()

    def _run(self, statement: str, values: Sequence[Any] | None = None) -> "psycopg.Cursor[Any]":
        return self._cursor().execute(statement.encode(), values)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Raise what PostgreSQL says as an error of the sink. Its own words may hold values and are not repeated."""
        try:
            yield
        except psycopg.Error as error:
            raise _sink_error(self._options, error) from None


_UNAVAILABLE = ("08", "40", "53", "55", "57", "58")
"""Classes of SQLSTATE that another try may answer: connections, resources, locks, shutdowns, deadlocks, disks."""


def _sink_error(options: PostgresOptions, error: psycopg.Error) -> SinkError:
    """Return the error of the sink for one of PostgreSQL."""
    state = error.sqlstate or ""
    if state.startswith("28") or "authentication failed" in str(error):
        return SinkRefusedError(f"{options!r} refuses the user {options.user!r} or the password: mend the sink's URL")
    if state.startswith("3D") or ("does not exist" in str(error) and not state):
        return SinkRefusedError(f"{options!r} is not there: make it, or mend the sink's URL")
    if state.startswith(_UNAVAILABLE) or (not state and isinstance(error, psycopg.OperationalError)):
        return SinkUnavailableError(f"{options!r} cannot be reached, or is busy ({state or type(error).__name__})")
    column = f", column {error.diag.column_name!r}" if error.diag.column_name else ""
    rule = f", constraint {error.diag.constraint_name!r}" if error.diag.constraint_name else ""
    return SinkRefusedError(f"PostgreSQL refused it ({state} {type(error).__name__}{column}{rule})")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _same(key: Sequence[str]) -> str:
    return " AND ".join(f"t.{_quoted(name)} = s.{_quoted(name)}" for name in key)


def _declared(type_: pa.DataType) -> str:
    """Return the type of a column in PostgreSQL."""
    return f"numeric({type_.precision},{type_.scale})" if pa.types.is_decimal128(type_) else _NAMES[type_]


def _arrow(type_: str, precision: int | None, scale: int | None) -> pa.DataType:
    """Return the type of a column that we could have made, null of another one."""
    if type_ == "numeric" and precision is not None and precision <= 38:
        return pa.decimal128(precision, scale or 0)
    return _TYPES.get(type_, pa.null())


def _plain(column: pa.ChunkedArray) -> Any:
    """Return a column as CSV can hold it: bytes become PostgreSQL's hexadecimal text."""
    if not pa.types.is_binary(column.type):
        return column
    return pa.array([None if value is None else "\\x" + value.hex() for value in column.to_pylist()], pa.string())
