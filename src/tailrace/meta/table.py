"""Tables of the metadata database as they are in its newest version; `tailrace.meta.migration` leads to them."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    false,
)

from tailrace.meta.engine import TEXT_AS_IT_IS

__all__ = [
    "METADATA",
    "NAME_MAX",
    "SERVER_MAX",
    "SINK_MAX",
    "api_key",
    "consumer",
    "dead_letter",
    "key_range",
    "migration",
    "pipeline",
    "pipeline_range",
    "progress",
    "query",
    "ranged_table",
    "registration",
    "server",
    "shard",
    "sink",
    "subscribe",
    "subscription",
    "taken_over",
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
"""Tables that pullers know by number. One that is made again gets another number."""

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

sink = Table(
    "tailrace_sink",
    METADATA,
    Column("name", String(64), primary_key=True),
    Column("source", String(255), nullable=False),
    Column("url", Text, nullable=False),
    Column("subscription", String(64), nullable=False),
    Column("created_time_us", BigInteger, nullable=False),
    Column("figures", Text, nullable=False),
    **TEXT_AS_IT_IS,
)
"""One row for each sink that was ever run. `url` is without its password; `subscription` is empty until it has one."""

taken_over = Table(
    "tailrace_taken_over",
    METADATA,
    Column("name", String(64), primary_key=True),
    Column("time_us", BigInteger, nullable=False),
    **TEXT_AS_IT_IS,
)
"""Marks of files whose rows are here, but which are still to be set aside; see `tailrace.meta.older_pipelines`."""


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


# `subscribe` and `progress` are JimDB's tables, column for column, so that its tools can read them. What they have no
# column for is in tables of our own.

NAME_MAX = 255
SERVER_MAX = 1024
SINK_MAX = 4096
"""Most characters of the URL of a sink."""

_NAME = String(NAME_MAX)
_KEY = String(4096)

subscribe = Table(
    "subscribe",
    METADATA,
    Column("cluster_id", Integer, primary_key=True, autoincrement=False),
    Column("db_name", _NAME, primary_key=True),
    Column("table_name", _NAME, primary_key=True),
    Column("subscribe_name", _NAME, primary_key=True),
    Column("db_id", Integer, nullable=False),
    Column("table_id", Integer, nullable=False),
    Column("master_addrs", String(SERVER_MAX), nullable=False),
    Column("sink", String(SINK_MAX), nullable=False),
    Column("cancel", Integer, nullable=False),
    Column("owner", _NAME, nullable=False),
    **TEXT_AS_IT_IS,
)
"""One row for each table of a pipeline. `owner` is the worker that has the pipeline; empty for none."""

progress = Table(
    "progress",
    METADATA,
    Column("db_name", _NAME, primary_key=True),
    Column("table_name", _NAME, primary_key=True),
    Column("subscribe_name", _NAME, primary_key=True),
    Column("range_id", Integer, primary_key=True, autoincrement=False),
    Column("progress_stage", Integer, nullable=False),
    Column("progress_init_snapshot_version", BigInteger, nullable=False),
    Column("progress_current_snapshot_version", BigInteger, nullable=False),
    Column("progress_last_snapshot_key", _KEY, nullable=True),
    Column("progress_last_log_index", BigInteger, nullable=False),
    **TEXT_AS_IT_IS,
)
"""One row for each range of a table. Versions and log indexes are offsets; keys are in their natural JSON form."""

pipeline = Table(
    "tailrace_pipeline",
    METADATA,
    Column("name", _NAME, primary_key=True),
    Column("definition", Text, nullable=False),
    Column("created_time_us", BigInteger, nullable=False),
    Column("paused", Boolean, nullable=False, server_default=false()),
    Column("owner", _NAME, nullable=False),
    Column("term", BigInteger, nullable=False),
    Column("lease_end_us", BigInteger, nullable=False),
    Column("generation", Integer, nullable=False),
    Column("sink_state", String(32), nullable=False, server_default="empty"),
    Column("subscription", _NAME, nullable=True),
    Column("copying", Text, nullable=True),
    Column("figures", Text, nullable=False),
    **TEXT_AS_IT_IS,
)
"""One row for each pipeline: what it is, who has it, and the batch that is being copied."""

pipeline_range = Table(
    "tailrace_pipeline_range",
    METADATA,
    Column("pipeline", _NAME, primary_key=True),
    Column("table_name", _NAME, primary_key=True),
    Column("range_id", Integer, primary_key=True, autoincrement=False),
    Column("after_key", _KEY, nullable=True),
    Column("through_key", _KEY, nullable=True),
    Column("rows_copied", BigInteger, nullable=False),
    **TEXT_AS_IT_IS,
)
"""The keys of each range: after one, through another."""
