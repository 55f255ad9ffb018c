"""The first stage of a pipeline: its tables are divided into ranges, and the log is held for it."""

import contextlib

from msgspec import structs

from tailrace.client.bulk_rows import BulkRowsClient
from tailrace.meta.pipeline import Figures, Lease, Pipeline, SinkState, Stage
from tailrace.model.errors import TailraceError
from tailrace.pipeline.batch_writer import BatchWriter
from tailrace.pipeline.copy import CopyOptions, planned
from tailrace.pipeline.errors import PipelineFailedError
from tailrace.pipeline.store import PipelineStore

__all__ = ["register", "unsubscribe"]


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
            sink_state=_sink_state(writer, found, version),
            figures=figures,
        )
        ranges = store.progress(lease.name)
    elif {one.table for one in ranges} != set(definition.tables):
        _follow_tables(store, lease, client, writer, options)
        ranges = store.progress(lease.name)
    if all(one.stage is Stage.REGISTER for one in ranges):
        subscription, _ = client.subscribe(definition.source, definition.tables, ranges[0].init_version)
        store.subscribed(lease, subscription)


def _follow_tables(
    store: PipelineStore, lease: Lease, client: BulkRowsClient, writer: BatchWriter, options: CopyOptions
) -> None:
    """Have tables copied that were added to a pipeline, and forget those that were removed from it.

    The log is followed from where the sink is, which is before anything that is copied now: nothing is missing between.
    """
    found = store.get(lease.name)
    definition, ranges = found.definition, store.progress(lease.name)
    known = {one.table for one in ranges}
    tables = [one.table for one in client.info(definition.source, definition.tables).tables]
    if gone := known - set(tables):
        store.drop_tables(lease, gone)
    plans = {table: planned(client, definition.source, table, options) for table in tables if table not in known - gone}
    if plans:
        added = [schema for schema in writer.schemas() if schema.table.wire in plans]
        state = found.sink_state
        if state is SinkState.EMPTY and not all(map(writer.sink().is_empty, added)):
            state = SinkState.SHARED
        rows = found.figures.rows + sum(count for _, count in plans.values())
        store.add_tables(
            lease,
            {table: intervals for table, (intervals, _) in plans.items()},
            source=definition.source,
            version=min(one.init_version for one in ranges),
            reached=min(one.last_log_index for one in ranges),
            stage=Stage.REGISTER if all(one.stage is Stage.REGISTER for one in ranges) else Stage.SNAPSHOT,
            sink_state=state,
            figures=structs.replace(found.figures, rows=rows),
        )


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


def _sink_state(writer: BatchWriter, found: Pipeline, version: int) -> SinkState:
    """Return what the sink has of the tables. One that was here before forgets how far it was then.

    That may be further than `version`, where the source's log began again.
    """
    sink = writer.sink()
    if sink.newest(writer.schemas()) is not None or sink.progress() is not None:
        writer.note(version, anew=True)
        return SinkState.STALE
    if all(sink.is_empty(schema) for schema in writer.schemas()):
        return SinkState.EMPTY
    return SinkState.STALE if found.generation else SinkState.SHARED
