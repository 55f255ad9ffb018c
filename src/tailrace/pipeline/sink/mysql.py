"""MySQL and MariaDB databases as sinks."""

# ruff: noqa: S608 - names are quoted, values are given apart
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pymysql  # type: ignore[import-untyped]
import pymysql.cursors  # type: ignore[import-untyped]
from msgspec import Struct
from pymysql.constants import CR  # type: ignore[import-untyped]

from tailrace.model.errors import SinkError, SinkRefusedError, SinkUnavailableError
from tailrace.pipeline.fold import OFFSET
from tailrace.pipeline.sink.server_tables import ServerTables
from tailrace.pipeline.sink.silence import connected
from tailrace.pipeline.sink.sql import ARRIVALS, BATCHES

__all__ = ["MysqlDatabase", "MysqlOptions", "in_statements", "row_texts", "sink_error"]


def row_texts(rows: pa.Table) -> list[str]:
    """Return rows as SQL, each in parentheses. All cells of a column are written at once.

    Text is escaped for a connection that speaks UTF-8 and has backslashes as escapes, which is what we set.

    Raises:
        SinkRefusedError: A number is not finite.
    """
    cells = [_literals(rows[name]) for name in rows.column_names]
    joined = pc.binary_join_element_wise(*cells, ",", null_handling="replace", null_replacement="NULL")
    return [f"({row})" for row in joined.to_pylist()]


def _literals(column: pa.ChunkedArray) -> Any:
    """Return the values of a column as SQL; null stays null."""
    type_ = column.type
    if pa.types.is_binary(type_):
        return pa.chunked_array(
            [[None if value is None else f"x'{value.hex()}'" for value in column.to_pylist()]], pa.string()
        )
    if pa.types.is_floating(type_) and pc.all(pc.is_finite(column)).as_py() is False:
        raise SinkRefusedError("MySQL cannot store NaN or infinity")
    if pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_boolean(type_):
        return column.cast(pa.string())
    text = (column.cast(pa.timestamp("us")) if pa.types.is_timestamp(type_) else column).cast(pa.string())
    for plain, escaped in (("\\", "\\\\"), ("'", "\\'"), ("\0", "\\0")):
        text = pc.replace_substring(text, plain, escaped)
    return pc.binary_join_element_wise("'", text, "'", "")


def in_statements(texts: Sequence[str], bytes_max: int, row_bytes_max: int) -> Iterator[Sequence[str]]:
    """Cut rows into runs that have no more than this many bytes, or are one row alone that has more.

    Raises:
        SinkRefusedError: One row has more than any may have.
    """
    first, size = 0, 0
    for place, text in enumerate(texts):
        length = len(text.encode()) + 1
        if length > row_bytes_max:
            raise SinkRefusedError("it is larger than max_allowed_packet of the server")
        if size and size + length > bytes_max:
            yield texts[first:place]
            first, size = place, 0
        size += length
    yield texts[first:]


_ACCESS = frozenset({1044, 1045, 1698})
_NO_DATABASE = frozenset({1049})
_UNAVAILABLE = frozenset(
    {
        *(1021, 1037, 1040, 1041, 1042, 1114, 1129, 1135, 1203, 1226),  # memory, disks, connections that are too many
        *(1053, 1152, 1158, 1159, 1160, 1161, 1184, 1927, 2002, 2003, 2006, 2013, 2055, 4031),  # a lost connection
        *(1020, 1205, 1213, 1317, 1412, 1969, 3024, 3101),  # other transactions, and what takes too long
        *(1047, 1290, 1836),  # a server that is, for now, only read
    }
)
"""Errors that another try may answer."""


def sink_error(place: str, user: str, error: pymysql.Error) -> SinkError:
    """Return the error of the sink. What MySQL says may hold values and is not repeated."""
    code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
    if code in _ACCESS:
        return SinkRefusedError(f"{place} refuses the user {user!r} or the password: fix the sink's URL")
    if code in _NO_DATABASE:
        return SinkRefusedError(f"{place} does not exist: create it, or fix the sink's URL")
    if code in _UNAVAILABLE or isinstance(error, pymysql.InterfaceError):
        return SinkUnavailableError(f"{place} cannot be reached, or is busy (error {code})")
    return SinkRefusedError(f"MySQL refused it (error {code or type(error).__name__})")


_CONNECT_TIMEOUT_S = 10
_ROWS_AT_ONCE_MAX = 20_000
_STATEMENT_BYTES_MAX = 4 << 20
_PACKET_SPARE = 16
"""Room in a packet besides the statement."""

_KEY_BYTES_MAX = 3072
"""What an index takes."""

_KEY_CHARACTERS_MAX = 760
_CHARACTER_BYTES = 4
_NUMBER_BYTES = 17
"""What a column of a key that is no text takes at most: a decimal of 38 digits."""

_NAME_CHARACTERS_MAX = 64

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
        self._folds_names = False

    def connect(self) -> None:
        """Connect."""
        self.close()
        options = self._options
        with self._errors():
            connection = pymysql.connect(
                host=options.host,
                port=options.port,
                user=options.user,
                password=options.password,
                database=options.database,
                charset="utf8mb4",
                autocommit=True,
                defer_connect=True,
            )
            connection.connect(self._socket())
            self._connection = connection
            self._run("SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', time_zone = '+00:00'")
            ((self._packet_bytes_max, folds),) = self._run("SELECT @@max_allowed_packet, @@lower_case_table_names")
            self._folds_names = bool(folds)
            maria = "MariaDB" in self._connection.get_server_info()
            self._collation = "utf8mb4_nopad_bin" if maria else "utf8mb4_0900_bin"
            if self.columns(BATCHES) is None:
                self._run(
                    f"CREATE TABLE IF NOT EXISTS {BATCHES} (pipeline VARCHAR(255) COLLATE {self._collation} NOT NULL,"
                    " number BIGINT NOT NULL, offsets LONGTEXT NOT NULL, highest LONGTEXT NOT NULL,"
                    " changes BIGINT NOT NULL, applied_at TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6),"
                    f" PRIMARY KEY (pipeline, number)){self._suffix}"
                )

    def _socket(self) -> socket.socket:
        try:
            return connected(self._options.host, self._options.port, _CONNECT_TIMEOUT_S)
        except OSError:
            raise pymysql.OperationalError(CR.CR_CONN_HOST_ERROR) from None

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

    def canonical(self, table: str) -> str:
        """Return what names have in common that the server does not tell apart: on some, their small letters."""
        return super().canonical(table.lower() if self._folds_names else table)

    def columns(self, table: str) -> pa.Schema | None:
        """Return the columns of a table.

        Raises:
            SinkRefusedError: Its engine has no transactions.
        """
        with self._errors():
            engines = self._run(
                "SELECT e.engine FROM information_schema.tables t JOIN information_schema.engines e USING (engine)"
                " WHERE t.table_schema = %s AND t.table_name = %s AND e.transactions <> 'YES'",
                [self._options.database, table],
            )
            for (engine,) in engines:
                reason = f"the sink's table {table!r} is of engine {engine}, which has no transactions: make it InnoDB"
                raise SinkRefusedError(reason)
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
        """Change the types of columns. A column of the key that becomes text shares the room that the others had."""
        key = pa.schema([columns.field(name) for name in self.key(table)])
        shared = [field.name for field in key if _is_text(field.type)] if set(names) & set(key.names) else []
        fields = [columns.field(name) for name in dict.fromkeys([*names, *shared])]
        parts = [f"MODIFY COLUMN {self._quoted(field.name)} {self._declared(field, key)}" for field in fields]
        with self._errors():
            self._run(f"ALTER TABLE {self._named(table)} {', '.join(parts)}")

    def _deletion(self, target: str, key: pa.Schema) -> str:
        return (
            f"DELETE t FROM {ARRIVALS} s STRAIGHT_JOIN {target} t ON {self._same(key)}"
            f" WHERE t.{OFFSET} IS NULL OR t.{OFFSET} <= s.{OFFSET}"
        )

    def _upsertion(self, target: str, names: Sequence[str], key: pa.Schema) -> str:
        """Return the statement. The offset is put in place last: what is before it looks at the old one.

        MySQL finds the row that breaks any rule of the table, not only that of its key: if it is one with another key,
        that key is made null, which is an error.
        """
        listed = self._listed(names)
        first, *_ = (self._quoted(name) for name in key.names)
        others = [self._quoted(name) for name in names if name not in {*key.names, OFFSET}]
        newer = f"{target}.{OFFSET} IS NULL OR {target}.{OFFSET} <= {ARRIVALS}.{OFFSET}"
        changed = [f"{target}.{first} = IF({self._same(key, target, ARRIVALS)}, {target}.{first}, NULL)"]
        changed += [f"{target}.{one} = IF({newer}, {ARRIVALS}.{one}, {target}.{one})" for one in [*others, OFFSET]]
        return (
            f"INSERT INTO {target} ({listed}) SELECT {listed} FROM {ARRIVALS}"
            f" ON DUPLICATE KEY UPDATE {', '.join(changed)}"
        )

    def _closing(self, target: str, key: pa.Schema) -> str:
        return (
            f"UPDATE {ARRIVALS} s STRAIGHT_JOIN {target} t ON {self._same(key)}"
            " SET t.valid_to = s.valid_to, t.valid_to_offset = s.valid_to_offset WHERE t.valid_to_offset IS NULL"
        )

    def _empty(self, target: str, listed: str) -> Sequence[str]:
        statement = f"CREATE TEMPORARY TABLE {ARRIVALS} AS SELECT {listed} FROM {target} LIMIT 0"
        return [f"DROP TEMPORARY TABLE IF EXISTS {ARRIVALS}", statement]

    def _fill(self, target: str, rows: pa.Table) -> None:
        """Insert rows, many in each statement."""
        insert = f"INSERT INTO {target} ({self._listed(rows.column_names)}) VALUES "
        room = self._packet_bytes_max - len(insert.encode()) - _PACKET_SPARE
        for place in range(0, rows.num_rows, _ROWS_AT_ONCE_MAX):
            texts = row_texts(rows.slice(place, _ROWS_AT_ONCE_MAX))
            for some in in_statements(texts, min(_STATEMENT_BYTES_MAX, room), room):
                self._run(insert + ",".join(some))

    def _same(self, key: pa.Schema, one: str = "t", other: str = "s") -> str:
        """Return the condition; a table that someone else made may take different texts for one."""
        texts = [self._quoted(field.name) for field in key if pa.types.is_string(field.type)]
        exact = [f"CAST({one}.{name} AS BINARY) = CAST({other}.{name} AS BINARY)" for name in texts]
        return " AND ".join([super()._same(key, one, other), *exact])

    def _quoted(self, name: str) -> str:
        if len(name) > _NAME_CHARACTERS_MAX:
            raise SinkRefusedError(f"MySQL names have at most {_NAME_CHARACTERS_MAX} characters: {name!r}")
        return "`" + name.replace("`", "``") + "`"

    def _declared(self, field: pa.Field, key: pa.Schema) -> str:
        """Return the type of a column in MySQL; long text can be no part of a key."""
        type_ = field.type
        texts = sum(_is_text(one.type) for one in key)
        room = (_KEY_BYTES_MAX - (len(key) - texts) * _NUMBER_BYTES) // _CHARACTER_BYTES
        length = min(room, _KEY_CHARACTERS_MAX) // max(texts, 1)
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

    def _run(self, statement: str, values: Sequence[Any] | None = None) -> Sequence[Any]:
        with self._cursor() as cursor:
            cursor.execute(statement, values)
            found: Sequence[Any] = cursor.fetchall()
            return found

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
        return sink_error(repr(self._options), self._options.user, error)


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
