"""Facts about bringing metadata databases forward, from every version and on every kind of database."""

import pytest
from sqlalchemy import insert, inspect, select, text

from tailrace.clock import SystemClock
from tailrace.meta.database import Database
from tailrace.meta.engine import open_engine
from tailrace.meta.migration import MIGRATIONS
from tailrace.meta.pipeline import Definition
from tailrace.meta.sink_store import SinkStore
from tailrace.meta.table import METADATA, migration, pipeline, sink
from tailrace.model.errors import MetadataError
from tailrace.pipeline.store import PipelineStore

FIRST_COLUMNS = {
    "tailrace_subscription": ("paused", "auto_ack", "snapshot", "snapshot_offset", "transient", "owner"),
}
"""Columns that tables of the first version did not have."""


def made(url, version):
    """Make a database of an older version, as its code did."""
    engine = open_engine(url)
    with engine.begin() as connection:
        for number, step in enumerate(MIGRATIONS[:version], start=1):
            step(connection)
            connection.execute(insert(migration).values(version=number, applied_time_us=0))
            if number == 1:
                for table, columns in FIRST_COLUMNS.items():
                    for column in columns:
                        connection.execute(text(f"ALTER TABLE {table} DROP COLUMN {column}"))
    engine.dispose()


def shape(url):
    engine = open_engine(url)
    found = inspect(engine)
    columns = {name: {one["name"] for one in found.get_columns(name)} for name in found.get_table_names()}
    engine.dispose()
    return columns


@pytest.mark.parametrize("version", range(len(MIGRATIONS) + 1))
def test_every_version_leads_to_the_tables_that_the_code_uses(metadata_url, version):
    made(metadata_url, version)
    for _ in range(2):
        Database.open(metadata_url, SystemClock()).close()
    wanted = {table.name: set(table.columns.keys()) for table in METADATA.tables.values()}
    assert {name: columns for name, columns in shape(metadata_url).items() if name in wanted} == wanted
    engine = open_engine(metadata_url)
    with engine.begin() as connection:
        versions = connection.execute(select(migration.c.version).order_by(migration.c.version)).scalars().all()
    engine.dispose()
    assert versions == list(range(1, len(MIGRATIONS) + 1))


def test_tables_that_had_no_version_are_taken_up_with_their_rows(metadata_url):
    """Older versions made the tables of sinks and pipelines where they were missing, in the same database or alone."""
    made(metadata_url, 9)
    engine = open_engine(metadata_url)
    with engine.begin() as connection:
        for table in (sink, *(METADATA.tables[name] for name in ("tailrace_pipeline", "subscribe", "progress"))):
            table.create(connection)
        connection.execute(
            insert(sink).values(name="s", source="a", url="u", subscription="x", created_time_us=1, figures="{}")
        )
    engine.dispose()
    store = SinkStore.open(metadata_url, SystemClock())
    assert [one.name for one in store.all()] == ["s"]
    store.close()
    pipelines = PipelineStore.open(metadata_url, SystemClock())
    pipelines.create(Definition(name="p", source="a", tables=("t",), sink="console:"))
    assert [one.definition.name for one in pipelines.all()] == ["p"]
    pipelines.close()


@pytest.mark.parametrize(
    ("number_min", "generation", "followed", "state"),
    [
        (0, 0, True, "empty"),
        (1, 0, False, "shared"),
        (9, 0, True, "shared"),
        (9, 1, True, "shared"),
        (9, 1, False, "stale"),
    ],
)
def test_what_older_versions_knew_of_a_sink_stays_known(metadata_url, number_min, generation, followed, state):
    made(metadata_url, len(MIGRATIONS) - 1)
    values = {"name": "p", "definition": "{}", "created_time_us": 1, "owner": "", "term": 0, "lease_end_us": 0}
    values |= {"generation": generation, "figures": "{}"}
    place = {"db_name": "shop", "table_name": "t", "subscribe_name": "p", "range_id": 1, "progress_stage": 2}
    place |= {"progress_init_snapshot_version": 5, "progress_current_snapshot_version": 5}
    engine = open_engine(metadata_url)
    with engine.begin() as connection:
        connection.execute(insert(pipeline).values(values))
        connection.execute(
            insert(METADATA.tables["progress"]).values({**place, "progress_last_log_index": 5 + followed})
        )
        connection.execute(text("ALTER TABLE tailrace_pipeline DROP COLUMN sink_state"))
        connection.execute(text("ALTER TABLE tailrace_pipeline ADD COLUMN number_min BIGINT NOT NULL DEFAULT 0"))
        connection.execute(text(f"UPDATE tailrace_pipeline SET number_min = {number_min}"))
    engine.dispose()
    Database.open(metadata_url, SystemClock()).close()
    engine = open_engine(metadata_url)
    with engine.begin() as connection:
        assert connection.execute(select(pipeline.c.sink_state)).scalars().all() == [state]
    engine.dispose()
    assert "number_min" not in shape(metadata_url)["tailrace_pipeline"]


def test_stores_of_pipelines_and_sinks_refuse_a_newer_version_too(metadata_url):
    Database.open(metadata_url, SystemClock()).close()
    engine = open_engine(metadata_url)
    with engine.begin() as connection:
        connection.execute(insert(migration).values(version=1000, applied_time_us=0))
    for kind in (SinkStore, PipelineStore):
        with pytest.raises(MetadataError, match="upgrade"):
            kind.open(metadata_url, SystemClock())
    with engine.begin() as connection:
        connection.execute(migration.delete().where(migration.c.version == 1000))
        assert connection.execute(select(pipeline)).all() == []
    engine.dispose()
