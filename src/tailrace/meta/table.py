"""Tables of the metadata database and the steps that lead to them.

`MIGRATIONS` is the history: step N turns version N - 1 into version N. A released step never changes; a new shape is a
new step at the end, and the tables above it are what all steps together give.
"""

from collections.abc import Callable, Sequence

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    false,
    inspect,
    text,
)
from sqlalchemy.schema import CreateColumn

from tailrace.meta.database import TEXT_AS_IT_IS

__all__ = [
    "METADATA",
    "MIGRATIONS",
    "api_key",
    "consumer",
    "key_range",
    "migration",
    "query",
    "ranged_table",
    "registration",
    "server",
    "shard",
    "subscription",
    "term",
]

METADATA = MetaData()

migration = Table(
    "tailrace_migration",
    METADATA,
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("applied_time_us", BigInteger, nullable=False),
    **TEXT_AS_IT_IS,
)

subscription = Table(
    "tailrace_subscription",
    METADATA,
    # SQLite numbers only INTEGER columns by itself; AUTOINCREMENT keeps it from giving a number twice.
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("source", String(255), nullable=False),
    Column("target", Text, nullable=False),
    Column("filter", Text, nullable=False),
    Column("include_before", Boolean, nullable=False),
    Column("include_after", Boolean, nullable=False),
    Column("format", String(32), nullable=False),
    Column("cursor", BigInteger, nullable=False),
    Column("created_time_us", BigInteger, nullable=False),
    Column("paused", Boolean, nullable=False, server_default=false()),
    Column("auto_ack", Boolean, nullable=False, server_default=false()),
    Column("snapshot", Boolean, nullable=False, server_default=false()),
    Column("snapshot_offset", BigInteger, nullable=True),
    Column("transient", Boolean, nullable=False, server_default=false()),
    Column("owner", String(255), nullable=True),
    sqlite_autoincrement=True,
    **TEXT_AS_IT_IS,
)

server = Table(
    "tailrace_server",
    METADATA,
    Column("id", String(36), primary_key=True),
    **TEXT_AS_IT_IS,
)
"""One row: the name under which the databases know whoever keeps this metadata."""

shard = Table(
    "tailrace_shard",
    METADATA,
    Column("source", String(255), primary_key=True),
    Column("id", Integer, nullable=False, unique=True),
    **TEXT_AS_IT_IS,
)
"""Which shard holds the log of which source. A row stays when its source is no longer configured."""

query = Table(
    "tailrace_query",
    METADATA,
    Column("query_id", String(64), primary_key=True),
    Column("source", String(255), nullable=False),
    Column("text", Text, nullable=False),
    Column("original", Text, nullable=False),
    Column("name", String(255), nullable=False),
    Column("created_time_us", BigInteger, nullable=False),
    **TEXT_AS_IT_IS,
)

api_key = Table(
    "tailrace_api_key",
    METADATA,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("hash", String(64), nullable=False, unique=True),
    Column("name", String(255), nullable=False),
    Column("grant_json", Text, nullable=False),
    Column("created_time_us", BigInteger, nullable=False),
    Column("expires_time_us", BigInteger, nullable=True),
    sqlite_autoincrement=True,
    **TEXT_AS_IT_IS,
)
"""API keys by their hashes. A row never changes; a revoked key has none."""


term = Table(
    "tailrace_term",
    METADATA,
    Column("shard", Integer, primary_key=True, autoincrement=False),
    Column("term", BigInteger, primary_key=True, autoincrement=False),
    Column("first_index", BigInteger, nullable=False),
    **TEXT_AS_IT_IS,
)
"""When the log of a shard was opened for writing: the term that began then, and the first commit that it could hold."""

consumer = Table(
    "tailrace_consumer",
    METADATA,
    Column("owner", String(255), primary_key=True),
    Column("id", String(255), primary_key=True),
    Column("shard", Integer, nullable=False),
    Column("incarnation", BigInteger, nullable=False),
    Column("retention", Text, nullable=False),
    Column("checkpoint", BigInteger, nullable=False),
    Column("checkpoint_offset", BigInteger, nullable=False),
    Column("ended", String(64), nullable=True),
    Column("changed_time_us", BigInteger, nullable=False),
    **TEXT_AS_IT_IS,
)
"""Registered consumers of change streams. One that has ended keeps its row, so that no incarnation is used twice."""

ranged_table = Table(
    "tailrace_ranged_table",
    METADATA,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("source", String(255), nullable=False),
    Column("schema_name", String(255), nullable=False),
    Column("name", String(255), nullable=False),
    Column("key_columns", Text, nullable=False),
    sqlite_autoincrement=True,
    **TEXT_AS_IT_IS,
)
"""Tables that pullers know by number. One that is made anew gets another number."""

key_range = Table(
    "tailrace_key_range",
    METADATA,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("table_id", Integer, nullable=False),
    Column("start_key", LargeBinary, nullable=False),
    Column("end_key", LargeBinary, nullable=False),
    Column("conf_ver", BigInteger, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("parent", BigInteger, nullable=True),
    Column("born_version", BigInteger, nullable=False),
    Column("born_end", LargeBinary, nullable=False),
    sqlite_autoincrement=True,
    **TEXT_AS_IT_IS,
)
"""Slices of the keys of those tables, with their epochs."""

registration = Table(
    "tailrace_registration",
    METADATA,
    Column("range_id", BigInteger, primary_key=True, autoincrement=False),
    Column("owner", String(255), primary_key=True),
    Column("name", String(255), primary_key=True),
    Column("init_version", BigInteger, nullable=False),
    Column("log_index", BigInteger, nullable=False),
    Column("snapshot_version", BigInteger, nullable=False),
    Column("snapshot_schema", Integer, nullable=False),
    Column("heard_time_us", BigInteger, nullable=False),
    **TEXT_AS_IT_IS,
)
"""Pullers of ranges, and from where on the log is kept for them."""


def _first_tables(connection: Connection) -> None:
    METADATA.create_all(connection)


def _pause_and_auto_ack(connection: Connection) -> None:
    _add_columns(connection, subscription, "paused", "auto_ack")


def _prepared_queries(connection: Connection) -> None:
    query.create(connection, checkfirst=True)


def _snapshots(connection: Connection) -> None:
    _add_columns(connection, subscription, "snapshot", "snapshot_offset")


def _keys_and_owners(connection: Connection) -> None:
    api_key.create(connection, checkfirst=True)
    _add_columns(connection, subscription, "owner")


def _transient(connection: Connection) -> None:
    _add_columns(connection, subscription, "transient")


def _change_streams(connection: Connection) -> None:
    term.create(connection, checkfirst=True)
    consumer.create(connection, checkfirst=True)


def _ranges(connection: Connection) -> None:
    for table in (ranged_table, key_range, registration):
        table.create(connection, checkfirst=True)


def _texts_as_they_are(connection: Connection) -> None:
    name = connection.dialect.name
    if name in {"mysql", "mariadb"}:
        charset, collation = TEXT_AS_IT_IS[f"{name}_charset"], TEXT_AS_IT_IS[f"{name}_collate"]
        for table in METADATA.sorted_tables:
            connection.execute(text(f"ALTER TABLE {table.name} CONVERT TO CHARACTER SET {charset} COLLATE {collation}"))


def _add_columns(connection: Connection, table: Table, *names: str) -> None:
    """Add columns to a table that an older version made; a table made by this one has them."""
    present = {column["name"] for column in inspect(connection).get_columns(table.name)}
    for name in names:
        if name not in present:
            column = CreateColumn(table.columns[name]).compile(dialect=connection.dialect)
            connection.execute(text(f"ALTER TABLE {table.name} ADD COLUMN {column}"))


MIGRATIONS: Sequence[Callable[[Connection], None]] = (
    _first_tables,
    _pause_and_auto_ack,
    _prepared_queries,
    _snapshots,
    _keys_and_owners,
    _transient,
    _change_streams,
    _ranges,
    _texts_as_they_are,
)
