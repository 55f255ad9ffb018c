"""Upkeep of Delta tables: each step is a commit of its own that changes no row."""

import time

from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from tailrace.model.errors import SinkRefusedError
from tailrace.model.table import TableSchema
from tailrace.pipeline.sink.delta_lake import DeltaLake
from tailrace.pipeline.sink.delta_table import delta_errors
from tailrace.pipeline.sink.disk import sync_since
from tailrace.pipeline.sink.upkeep import TableUpkeep, UpkeepOptions, columns_of

__all__ = ["maintain_table"]

_TRIES_MAX = 3
"""So often files are put together where others commit meanwhile."""

_SYNC_BEFORE_NS = 10_000_000_000
"""Files are made durable that are this much older, too: file systems have clocks of their own."""


def maintain_table(lake: DeltaLake, schema: TableSchema, options: UpkeepOptions) -> TableUpkeep:
    """Put small files of a table together, then remove files that no state within the retention has.

    Raises:
        SinkError: The table cannot be reached, or lacks a column that its rows are to be ordered by.
    """
    wire = schema.table.wire
    with delta_errors(schema):
        table = lake.table(schema)
        before = len(table.file_uris())
        begin_ns = time.time_ns() - _SYNC_BEFORE_NS
        order = columns_of(options.z_order, wire)
        known = {field.name for field in table.schema().fields}
        if missing := [name for name in order if name not in known]:
            raise SinkRefusedError(f"there is no column {missing[0]!r} to order rows by", table=wire)
        if not _compacted(table, order, options):
            return TableUpkeep(wire, before, before, skipped="others committed to the table all the while: try again")
        directory = lake.directory(schema)
        if directory is not None:  # before files go that these stand for
            sync_since(directory, begin_ns)
        removed = table.vacuum(
            retention_hours=max(1, round(options.retention_s / 3600)),
            dry_run=False,
            enforce_retention_duration=False,
            full=True,
        )
        return TableUpkeep(wire, before, len(table.file_uris()), len(removed))


def _compacted(table: DeltaTable, order: list[str], options: UpkeepOptions) -> bool:
    """Put files together; return whether that is done."""
    for _ in range(_TRIES_MAX):
        try:
            if order:
                table.optimize.z_order(order, target_size=options.file_bytes)
            else:
                table.optimize.compact(target_size=options.file_bytes)
        except CommitFailedError:
            table.update_incremental()
        else:
            return True
    return False
