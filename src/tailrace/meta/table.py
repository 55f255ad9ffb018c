"""Tables of the metadata database and the steps that lead to them.

`MIGRATIONS` is the history: step N turns version N - 1 into version N. A released step never changes; a new shape is a
new step at the end, and the tables above it are what all steps together give.
"""

from collections.abc import Callable, Sequence

from sqlalchemy import BigInteger, Boolean, Column, Connection, Integer, MetaData, String, Table, Text

__all__ = ["METADATA", "MIGRATIONS", "migration", "server", "shard", "subscription"]

METADATA = MetaData()

migration = Table(
    "tailrace_migration",
    METADATA,
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("applied_time_us", BigInteger, nullable=False),
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
    sqlite_autoincrement=True,
)

server = Table(
    "tailrace_server",
    METADATA,
    Column("id", String(36), primary_key=True),
)
"""One row: the name under which the databases know whoever keeps this metadata."""

shard = Table(
    "tailrace_shard",
    METADATA,
    Column("source", String(255), primary_key=True),
    Column("id", Integer, nullable=False, unique=True),
)
"""Which shard holds the log of which source. A row stays when its source is no longer configured."""


def _first_tables(connection: Connection) -> None:
    METADATA.create_all(connection)


MIGRATIONS: Sequence[Callable[[Connection], None]] = (_first_tables,)
