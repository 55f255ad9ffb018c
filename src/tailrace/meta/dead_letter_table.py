"""The table of the metadata database that holds dead letters."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Integer,
    LargeBinary,
    String,
    Table,
    Text,
    UniqueConstraint,
)

from tailrace.meta.engine import TEXT_AS_IT_IS
from tailrace.meta.table import METADATA

__all__ = ["dead_letter"]

_CHANGE_BYTES_MAX = 2**32 - 1

dead_letter = Table(
    "tailrace_dead_letter",
    METADATA,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("sink", String(255), nullable=False),
    Column("message_id", String(512), nullable=False),
    Column("message_hash", String(64), nullable=False),
    Column("source", String(255), nullable=False),
    Column("table_name", String(255), nullable=False),
    Column("key_json", Text, nullable=False),
    Column("key_hash", String(64), nullable=False),
    Column("offset", BigInteger, nullable=False),
    Column("commit_index", BigInteger, nullable=False),
    Column("op", String(16), nullable=False),
    Column("snapshot", Boolean, nullable=False),
    Column("state", String(16), nullable=False),
    Column("reason", Text, nullable=False),
    Column("parked_time_us", BigInteger, nullable=False),
    Column("tries", Integer, nullable=False),
    Column("change_msgpack", LargeBinary(_CHANGE_BYTES_MAX), nullable=False),
    UniqueConstraint("sink", "message_hash", name="tailrace_dead_letter_message"),
    UniqueConstraint("key_hash", "offset", "message_hash", name="tailrace_dead_letter_key"),
    sqlite_autoincrement=True,
    **TEXT_AS_IT_IS,
)
"""One row for each parked change. Hashes are over the sink and the message or the key, so that case always counts."""
