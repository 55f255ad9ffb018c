"""The steps that lead to the tables of the metadata database, and bringing a database to the newest of them.

`MIGRATIONS` is the history: step N turns version N - 1 into version N. A released step never changes; a new shape is a
new step at the end, and the tables of `tailrace.meta.table` are what all steps together give. Each step can be
repeated: MySQL commits every change of a table by itself, so a crash may leave a step half done.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence

from sqlalchemy import Connection, Engine, Table, insert, inspect, select, text
from sqlalchemy.schema import CreateColumn

from tailrace.clock import Clock
from tailrace.meta.engine import TEXT_AS_IT_IS, transact
from tailrace.meta.table import (
    api_key,
    consumer,
    dead_letter,
    key_range,
    migration,
    pipeline,
    pipeline_range,
    progress,
    query,
    ranged_table,
    registration,
    server,
    shard,
    sink,
    subscribe,
    subscription,
    taken_over,
    term,
)
from tailrace.model.errors import MetadataError

__all__ = ["MIGRATIONS", "bring_forward"]

_LOCK = 7_283_911_402
_LOCK_NAME = "tailrace_migration"
_LOCK_S = 60

_FIRST = (migration, subscription, server, shard)
_UNTIL_TEXTS = (*_FIRST, query, api_key, term, consumer, ranged_table, key_range, registration)
_OF_SINKS_AND_PIPELINES = (sink, dead_letter, pipeline, pipeline_range, progress, subscribe)


def bring_forward(engine: Engine, clock: Clock) -> None:
    """Bring a database to the newest version. Safe for several processes at once: one of them works, the others wait.

    Raises:
        MetadataError: The database refused, or was written by a newer Tailrace.
    """
    if transact(engine, _version) == len(MIGRATIONS):
        return  # nearly always: then nothing is locked

    def run(connection: Connection) -> None:
        _lock(connection)
        # Asked again under the lock: another process may have migrated while this one waited.
        version = _version(connection)
        for number, step in enumerate(MIGRATIONS[version:], start=version + 1):
            step(connection)
            # Each step is noted by itself. MySQL commits a change of a table at once, so after a crash the steps before
            # it must count.
            connection.execute(insert(migration).values(version=number, applied_time_us=clock.now_us()))

    with _alone(engine):
        transact(engine, run)


def _version(connection: Connection) -> int:
    version = 0
    if inspect(connection).has_table(migration.name):
        version = max(connection.execute(select(migration.c.version)).scalars(), default=0)
    if version > len(MIGRATIONS):
        raise MetadataError(
            f"the metadata database has version {version}, this Tailrace supports up to {len(MIGRATIONS)}: upgrade it"
        )
    return version


def _lock(connection: Connection) -> None:
    """Keep others from migrating the same database until the transaction ends."""
    match connection.dialect.name:
        case "sqlite":
            # Python begins a transaction with the first row that is written; tables would be made before it.
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        case "postgresql":
            connection.execute(text(f"SELECT pg_advisory_xact_lock({_LOCK})"))


@contextlib.contextmanager
def _alone(engine: Engine) -> Iterator[None]:
    """Keep others from migrating the same MySQL database: its locks of names end with a connection, not before.

    They are of no use inside the transaction, as they would have to be given up before it is committed.
    """
    if engine.dialect.name not in {"mysql", "mariadb"}:
        yield
        return
    # A connection of its own: the migration commits on another one, and the lock must outlast that commit.
    with engine.connect() as connection:
        if not connection.execute(text(f"SELECT GET_LOCK('{_LOCK_NAME}', {_LOCK_S})")).scalar():
            raise MetadataError("another process migrates the metadata database: try again later")
        try:
            yield
        finally:
            connection.execute(text(f"SELECT RELEASE_LOCK('{_LOCK_NAME}')"))


def _create(connection: Connection, *tables: Table) -> None:
    for table in tables:
        table.create(connection, checkfirst=True)


def _first_tables(connection: Connection) -> None:
    _create(connection, *_FIRST)


def _pause_and_auto_ack(connection: Connection) -> None:
    _add_columns(connection, subscription, "paused", "auto_ack")


def _prepared_queries(connection: Connection) -> None:
    _create(connection, query)


def _snapshots(connection: Connection) -> None:
    _add_columns(connection, subscription, "snapshot", "snapshot_offset")


def _keys_and_owners(connection: Connection) -> None:
    _create(connection, api_key)
    _add_columns(connection, subscription, "owner")


def _transient(connection: Connection) -> None:
    _add_columns(connection, subscription, "transient")


def _change_streams(connection: Connection) -> None:
    _create(connection, term, consumer)


def _ranges(connection: Connection) -> None:
    _create(connection, ranged_table, key_range, registration)


def _texts_as_they_are(connection: Connection) -> None:
    _convert_texts(connection, _UNTIL_TEXTS)


def _sinks_and_pipelines(connection: Connection) -> None:
    """Take up the tables of sinks and pipelines, which had no versions until then and may be there."""
    _create(connection, *_OF_SINKS_AND_PIPELINES, taken_over)
    _convert_texts(connection, _OF_SINKS_AND_PIPELINES)


OLDER_SINK_STATE = """
CASE WHEN number_min = 0 THEN 'empty'
WHEN generation = 0 AND number_min = 1 THEN 'shared'
WHEN EXISTS (
    SELECT 1 FROM progress
    WHERE subscribe_name = name AND progress_last_log_index > progress_init_snapshot_version
) THEN 'shared'
ELSE 'stale' END
"""
"""What older versions knew of the sink of a pipeline, which kept the least number of its next batch.

Who has followed the log has compared before, where that was called for.
"""


def _sink_states(connection: Connection) -> None:
    """Take the numbers of batches out, which sinks know by themselves."""
    _add_columns(connection, pipeline, "sink_state")
    if "number_min" in {column["name"] for column in inspect(connection).get_columns(pipeline.name)}:
        connection.execute(text(f"UPDATE {pipeline.name} SET sink_state = {OLDER_SINK_STATE}"))  # noqa: S608 (ours)
        connection.execute(text(f"ALTER TABLE {pipeline.name} DROP COLUMN number_min"))


def _convert_texts(connection: Connection, tables: Sequence[Table]) -> None:
    """Have tables of MySQL tell texts apart that differ in case or accents alone."""
    name = connection.dialect.name
    if name in {"mysql", "mariadb"}:
        charset, collation = TEXT_AS_IT_IS[f"{name}_charset"], TEXT_AS_IT_IS[f"{name}_collate"]
        for table in tables:
            connection.execute(text(f"ALTER TABLE {table.name} CONVERT TO CHARACTER SET {charset} COLLATE {collation}"))


def _add_columns(connection: Connection, table: Table, *names: str) -> None:
    """Add columns to a table that an older version made; a table made by this one has them."""
    present = {column["name"] for column in inspect(connection).get_columns(table.name)}
    for name in names:
        if name not in present:
            # Compiled from the table as it is today. A released column never changes its type; where one has to, that
            # is a step of its own.
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
    _sinks_and_pipelines,
    _sink_states,
)
