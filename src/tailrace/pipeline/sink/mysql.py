"""MySQL and MariaDB databases as sinks."""

# ruff: noqa: S608 - names are quoted, values are given apart

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pymysql  # type: ignore[import-untyped]
import pymysql.cursors  # type: ignore[import-untyped]
from msgspec import Struct

from tailrace.model.errors import SinkError, SinkRefusedError, SinkUnavailableError
from tailrace.pipeline.fold import OFFSET
from tailrace.pipeline.sink.mysql_text import in_statements, row_texts
from tailrace.pipeline.sink.server_tables import ServerTables
from tailrace.pipeline.sink.sql import ARRIVALS, BATCHES

__all__ = ["MysqlDatabase", "MysqlOptions"]

_CONNECT_TIMEOUT_S = 10
_ROWS_AT_ONCE_MAX = 20_000
_STATEMENT_BYTES_MAX = 4 << 20
_PACKET_SPARE = 8192
"""Room in a packet for the rest of a statement: names of columns."""

_KEY_CHARACTERS_MAX = 760
"""An index takes 3072 bytes: so many characters of four bytes each, and a little for numbers beside them."""

_TYPES = {
    "bigint": pa.int64(),
    "double": pa.float64(),
    "longtext": pa.string(),
    "varchar": pa.string(),
    "longblob": pa.binary(),
    "varbinary": pa.binary(),
    "date": pa.date32(),
}
"""Types of columns that we make; tinyint(1), decimal and datetime(6) besides."""

_NAMES = {pa.int64(): "BIGINT", pa.float64(): "DOUBLE", pa.bool_(): "TINYINT(1)", pa.date32(): "DATE"}


class MysqlOptions(Struct, frozen=True):
    """Where the database is. The password is not shown."""

    host: str
    port: int
    user: str
    password: str
    database: str

    def __repr__(self) -> str:
        return f"MySQL at {self.host}:{self.port}, database {self.database!r}"


class MysqlDatabase(ServerTables):
    """One MySQL or MariaDB database. Rows come into a temporary table and from there, by one statement, in place.

    Neither database makes or changes tables in a transaction: columns are added before the batch is. Text in a key is
    compared byte by byte and has a bounded length; numbers that are not finite are refused, as MySQL has none.
    """

    failures = pymysql.Error
    duplicate = pymysql.IntegrityError
    join = "STRAIGHT_JOIN"

    def __init__(self, options: MysqlOptions) -> None:
        self._options = options
        self._connection: Any = None
        self._collation = ""
        self._packet_bytes_max = 0

    def connect(self) -> None:
        """Connect."""
        self.close()
        options = self._options
        with self._errors():
            self._connection = pymysql.connect(
                host=options.host,
                port=options.port,
                user=options.user,
                password=options.password,
                database=options.database,
                charset="utf8mb4",
                connect_timeout=_CONNECT_TIMEOUT_S,
                autocommit=True,
            )
            self._run("SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', time_zone = '+00:00'")
            ((self._packet_bytes_max,),) = self._run("SELECT @@max_allowed_packet")
            maria = "MariaDB" in self._connection.get_server_info()
            self._collation = "utf8mb4_nopad_bin" if maria else "utf8mb4_0900_bin"
            if self.columns(BATCHES) is None:
                self._run(
                    f"CREATE TABLE IF NOT EXISTS {BATCHES} (pipeline VARCHAR(255) COLLATE {self._collation} NOT NULL,"
                    " number BIGINT NOT NULL, offsets LONGTEXT NOT NULL, highest LONGTEXT NOT NULL,"
                    " changes BIGINT NOT NULL, applied_at TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6),"
                    f" PRIMARY KEY (pipeline, number)){self._suffix}"
                )

    def close(self) -> None:
        """Disconnect."""
        connection, self._connection = self._connection, None
        if connection is not None and connection.open:
            try:
                connection.close()
            except pymysql.Error:
                return  # it was not there any more

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Run what is inside as one transaction."""
        with self._errors():
            self._run("START TRANSACTION")
            try:
                yield
                self._run("COMMIT")
            except BaseException:
                self._roll_back()
                raise

    def columns(self, table: str) -> pa.Schema | None:
        """Return the columns of a table."""
        with self._errors():
            found = self._run(
                "SELECT column_name, data_type, column_type, column_comment, numeric_precision, numeric_scale"
                " FROM information_schema.columns WHERE table_schema = %s AND table_name = %s"
                " ORDER BY ordinal_position",
                [self._options.database, table],
            )
        return pa.schema([(name, _arrow(*type_)) for name, *type_ in found]) if found else None

    def key(self, table: str) -> list[str]:
        """Return the columns of the primary key."""
        with self._errors():
            found = self._run(
                "SELECT column_name FROM information_schema.key_column_usage WHERE table_schema = %s"
                " AND table_name = %s AND constraint_name = 'PRIMARY' ORDER BY ordinal_position",
                [self._options.database, table],
            )
        return [name for (name,) in found]

    def retype(self, table: str, columns: pa.Schema, names: Sequence[str]) -> None:
        """Change the types of columns."""
        key = pa.schema([columns.field(name) for name in self.key(table)])
        fields = [columns.field(name) for name in names]
        parts = [f"MODIFY COLUMN {self._quoted(field.name)} {self._declared(field, key)}" for field in fields]
        with self._errors():
            self._run(f"ALTER TABLE {self._named(table)} {', '.join(parts)}")

    def _deletion(self, target: str, key: pa.Schema) -> str:
        return (
            f"DELETE t FROM {ARRIVALS} s STRAIGHT_JOIN {target} t ON {self._same(key)}"
            f" WHERE t.{OFFSET} IS NULL OR t.{OFFSET} <= s.{OFFSET}"
        )

    def _upsertion(self, target: str, names: Sequence[str], key: pa.Schema) -> Sequence[str]:
        """The offset is put in place last: what is before it looks at the old one."""
        listed = [self._quoted(name) for name in names]
        others = [self._quoted(name) for name in names if name not in {*key.names, OFFSET}]
        newer = f"{target}.{OFFSET} IS NULL OR {target}.{OFFSET} <= s.{OFFSET}"
        changed = [f"{target}.{one} = IF({newer}, s.{one}, {target}.{one})" for one in [*others, OFFSET]]
        return [
            f"INSERT INTO {target} ({', '.join(listed)}) SELECT {', '.join(f's.{one}' for one in listed)}"
            f" FROM {ARRIVALS} s ON DUPLICATE KEY UPDATE {', '.join(changed)}"
        ]

    def _closing(self, target: str, key: pa.Schema) -> str:
        return (
            f"UPDATE {ARRIVALS} s STRAIGHT_JOIN {target} t ON {self._same(key)}"
            " SET t.valid_to = s.valid_to, t.valid_to_offset = s.valid_to_offset WHERE t.valid_to_offset IS NULL"
        )

    def _empty(self, target: str, listed: str) -> Sequence[str]:
        made = f"CREATE TEMPORARY TABLE {ARRIVALS} AS SELECT {listed} FROM {target} LIMIT 0"
        return [f"DROP TEMPORARY TABLE IF EXISTS {ARRIVALS}", made]

    def _fill(self, target: str, rows: pa.Table) -> None:
        """Insert rows, many in each statement."""
        listed = self._listed(rows.column_names)
        for place in range(0, rows.num_rows, _ROWS_AT_ONCE_MAX):
            texts = row_texts(rows.slice(place, _ROWS_AT_ONCE_MAX))
            for some in in_statements(texts, min(_STATEMENT_BYTES_MAX, self._packet_bytes_max - _PACKET_SPARE)):
                self._run(f"INSERT INTO {target} ({listed}) VALUES {','.join(some)}")

    def _quoted(self, name: str) -> str:
        return "`" + name.replace("`", "``") + "`"

    def _declared(self, field: pa.Field, key: pa.Schema) -> str:
        """Return the type of a column in MySQL; long text can be no part of a key."""
        type_ = field.type
        length = _KEY_CHARACTERS_MAX // max(sum(_is_text(one.type) for one in key), 1)
        if pa.types.is_string(type_):
            text = f"VARCHAR({length})" if field.name in key.names else "LONGTEXT"
            return f"{text} CHARACTER SET utf8mb4 COLLATE {self._collation}"
        if pa.types.is_binary(type_):
            return f"VARBINARY({length})" if field.name in key.names else "LONGBLOB"
        if pa.types.is_decimal128(type_):
            return f"DECIMAL({type_.precision},{type_.scale})"
        if pa.types.is_timestamp(type_):
            return "DATETIME(6) COMMENT 'UTC'" if type_.tz else "DATETIME(6)"
        return _NAMES[type_]

    @property
    def _suffix(self) -> str:
        return f" ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE {self._collation}"

    def _cursor(self, kind: Any = None) -> Any:
        if self._connection is None:
            raise SinkUnavailableError(f"{self._options!r} is not connected")
        return self._connection.cursor(kind)

    def _run(self, statement: str, values: Sequence[Any] | None = None) -> Any:
        with self._cursor() as cursor:
            cursor.execute(statement, values)
            return cursor.fetchall()

    @contextmanager
    def _reading(self, query: str) -> Iterator[Any]:
        with self._cursor(pymysql.cursors.SSCursor) as cursor:
            cursor.execute(query)
            yield cursor

    def _roll_back(self) -> None:
        """Undo the transaction. Where the connection is gone the server does."""
        try:
            self._run("ROLLBACK")
        except (pymysql.Error, SinkUnavailableError):
            self.close()

    def _failure(self, error: pymysql.Error) -> SinkError:
        return _sink_error(self._options, error)


_ACCESS = {1044, 1045, 1698}
_NO_DATABASE = {1049}
_UNAVAILABLE = {1021, 1040, 1053, 1114, 1203, 1205, 1213, 1317, 1927, 2002, 2003, 2006, 2013, 2055, 4031}
"""Errors that another try may answer: connections, resources, locks, shutdowns, deadlocks, full disks."""


def _sink_error(options: MysqlOptions, error: pymysql.Error) -> SinkError:
    """Return the error of the sink for one of MySQL."""
    code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
    if code in _ACCESS:
        return SinkRefusedError(f"{options!r} refuses the user {options.user!r} or the password: mend the sink's URL")
    if code in _NO_DATABASE:
        return SinkRefusedError(f"{options!r} is not there: make it, or mend the sink's URL")
    if code in _UNAVAILABLE or isinstance(error, pymysql.InterfaceError):
        return SinkUnavailableError(f"{options!r} cannot be reached, or is busy (error {code})")
    return SinkRefusedError(f"MySQL refused it (error {code or type(error).__name__})")


def _is_text(type_: pa.DataType) -> bool:
    return bool(pa.types.is_string(type_) or pa.types.is_binary(type_))


def _arrow(type_: str, whole: str, comment: str, precision: int | None, scale: int | None) -> pa.DataType:
    """Return the type of a column that we could have made, null of another one."""
    if "unsigned" in whole:
        return pa.null()
    if whole == "tinyint(1)":
        return pa.bool_()
    if type_ == "decimal" and precision is not None and precision <= 38:
        return pa.decimal128(precision, scale or 0)
    if whole == "datetime(6)":
        return pa.timestamp("us", tz="UTC" if comment == "UTC" else None)
    return _TYPES.get(type_, pa.null())
