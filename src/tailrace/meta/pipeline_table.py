"""Tables of the metadata database that pipelines keep.

`subscribe` and `progress` are those of JimDB, column for column; what it has no columns for is in tables of our own.
"""

from sqlalchemy import BigInteger, Boolean, Column, Integer, String, Table, Text, false

from tailrace.meta.engine import TEXT_AS_IT_IS
from tailrace.meta.table import METADATA

__all__ = ["NAME_MAX", "SERVER_MAX", "SINK_MAX", "pipeline", "pipeline_range", "progress", "subscribe"]

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
    Column("number_min", BigInteger, nullable=False),
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
