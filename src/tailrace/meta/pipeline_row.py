"""How pipelines and their progress are laid out in rows. Pure."""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from tailrace.meta.pipeline import Copying, Definition, Figures, Pipeline, RangeProgress, SinkState, Stage
from tailrace.model.errors import MetadataError
from tailrace.model.key_interval import KeyInterval

__all__ = ["Numbers", "encode", "pipeline_of", "progress_values", "range_of", "subscribe_values"]


class Numbers(Struct, frozen=True):
    """What JimDB numbers: the cluster, which a server is, the database, the table; 0 counts those of a pipeline."""

    cluster_id: int = 0
    db_id: int = 0
    table_id: int = 0


def encode(value: Struct) -> str:
    """Return a value as JSON text."""
    return msgspec.json.encode(value).decode()


def pipeline_of(row: Mapping[Any, Any], cancel: int, now_us: int) -> Pipeline:
    """Return the pipeline of a row.

    Raises:
        MetadataError: The row is not readable.
    """
    try:
        return Pipeline(
            definition=msgspec.json.decode(row["definition"], type=Definition),
            paused=row["paused"],
            cancelled=bool(cancel),
            owner=row["owner"],
            leased=bool(row["owner"]) and row["lease_end_us"] > now_us,
            generation=row["generation"],
            sink_state=SinkState(row["sink_state"]),
            subscription=row["subscription"],
            copying=None if row["copying"] is None else msgspec.json.decode(row["copying"], type=Copying),
            figures=msgspec.json.decode(row["figures"], type=Figures),
        )
    except ValueError as error:
        raise MetadataError(f"pipeline {row['name']!r} in the metadata database is not readable") from error


def range_of(row: Mapping[Any, Any]) -> RangeProgress:
    """Return the progress of a row of `progress`, joined with the keys of the range."""
    return RangeProgress(
        table=row["table_name"],
        range_id=row["range_id"],
        stage=Stage(row["progress_stage"]),
        within=KeyInterval(row["after_key"], row["through_key"]),
        last_key=row["progress_last_snapshot_key"],
        init_version=row["progress_init_snapshot_version"],
        current_version=row["progress_current_snapshot_version"],
        last_log_index=row["progress_last_log_index"],
        rows_copied=row["rows_copied"],
    )


def subscribe_values(definition: Definition, number: int, table: str, numbers: Numbers) -> dict[str, Any]:
    """Return the row of `subscribe` of a pipeline's table, the one of that number."""
    return {
        "cluster_id": numbers.cluster_id,
        "db_name": definition.source,
        "table_name": table,
        "subscribe_name": definition.name,
        "db_id": numbers.db_id,
        "table_id": numbers.table_id or number,
        "master_addrs": definition.server,
        "sink": definition.sink,
        "cancel": 0,
        "owner": "",
    }


def progress_values(
    name: str, source: str, table: str, range_id: int, version: int, within: KeyInterval
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the rows of a new range: that of `progress`, and that of its keys."""
    row = {
        "db_name": source,
        "table_name": table,
        "subscribe_name": name,
        "range_id": range_id,
        "progress_stage": int(Stage.REGISTER),
        "progress_init_snapshot_version": version,
        "progress_current_snapshot_version": version,
        "progress_last_log_index": version,
    }
    bounds = {
        "pipeline": name,
        "table_name": table,
        "range_id": range_id,
        "after_key": within.after,
        "through_key": within.through,
        "rows_copied": 0,
    }
    return row, bounds
