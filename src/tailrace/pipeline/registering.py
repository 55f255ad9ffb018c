"""The first stage of a pipeline: its tables are divided into ranges, and the log is held for it."""

import contextlib

from tailrace.client.bulk_rows import BulkRowsClient
from tailrace.meta.pipeline import Figures, Lease, Stage
from tailrace.model.errors import TailraceError
from tailrace.pipeline.batch_writer import BatchWriter
from tailrace.pipeline.copy import CopyOptions, next_number, planned
from tailrace.pipeline.errors import PipelineFailedError
from tailrace.pipeline.store import PipelineStore

__all__ = ["NUMBER_MIN_FOREIGN", "register", "unsubscribe"]

NUMBER_MIN_FOREIGN = 1
"""Least number of the first batch where the tables of a sink have rows that are not ours: these stay."""


def register(
    store: PipelineStore, lease: Lease, client: BulkRowsClient, writer: BatchWriter, options: CopyOptions
) -> None:
    """Plan the ranges of all tables, once, and subscribe.

    Raises:
        PipelineFailedError: It has failed for good.
        TailraceError: The server, the sink or the metadata failed.
    """
    found = store.get(lease.name)
    definition = found.definition
    ranges = store.progress(lease.name)
    if any(one.stage is Stage.FAILED for one in ranges):
        raise PipelineFailedError(lease.name, found.figures.problem or "see its status")
    if not ranges:
        info = client.info(definition.source, definition.tables)
        version = client.committed(definition.source, info.tables[0].table)
        plans = {table.table: planned(client, definition.source, table.table, options) for table in info.tables}
        figures = Figures(rows=sum(rows for _, rows in plans.values()))
        plan = {table: intervals for table, (intervals, _) in plans.items()}
        store.register(
            lease,
            plan,
            source=definition.source,
            version=version,
            number_min=_number_min(writer, found.number_min),
            figures=figures,
        )
        writer.number_min = store.get(lease.name).number_min
        ranges = store.progress(lease.name)
    if all(one.stage is Stage.REGISTER for one in ranges):
        subscription, _ = client.subscribe(definition.source, definition.tables, ranges[0].init_version)
        store.subscribed(lease, subscription)


def unsubscribe(server: str, token: str | None, subscription: str | None) -> None:
    """Have the log held no longer by a subscription that is not wanted any more, if the server is there."""
    if subscription is None:
        return
    client = BulkRowsClient(server, token)
    try:
        with contextlib.suppress(TailraceError):
            client.call("cdc.close", {"sub_id": subscription})
    finally:
        client.close()


def _number_min(writer: BatchWriter, least: int) -> int:
    """Return the least number of the first batch: 0 where the sink has nothing of the tables yet."""
    sink = writer.sink()
    progress = sink.progress()
    if progress is None and least == 0 and all(sink.is_empty(schema) for schema in writer.schemas()):
        return 0
    # One more than the next: a batch that only some of the tables have is never taken for another one.
    return max(least, NUMBER_MIN_FOREIGN + next_number(progress, 0))
