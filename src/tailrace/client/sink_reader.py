"""Reading a subscription of a server for a sink that runs elsewhere: the log in bulk, as it grows."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

import pyarrow as pa

from tailrace.client.bulk import BulkClient, BulkOptions
from tailrace.client.errors import ConnectionFailed, TimedOut
from tailrace.message.relay import Arrived
from tailrace.message.sink import SinkConfig
from tailrace.meta.sink_store import SinkStore
from tailrace.model.chunk import Chunk
from tailrace.model.errors import SourceUnavailableError
from tailrace.model.number import Offset, SchemaId
from tailrace.model.table import TableSchema

__all__ = ["ServerReader"]

_T = TypeVar("_T")

_ACKNOWLEDGE_S = 0.5
"""How often the server is told how far the sink is, at most."""

_OPTIONS = BulkOptions(outage_s_max=0.0)


class ServerReader:
    """Reads for one sink; see `tailrace.message.relay.Reader`. The token must be allowed to read the whole source."""

    def __init__(self, server: str, token: str | None, name: str, config: SinkConfig, store: SinkStore) -> None:
        self._reading = BulkClient(server, token, _OPTIONS)
        self._calling = BulkClient(server, token, _OPTIONS)
        self._name = name
        self._config = config
        self._store = store
        self._subscription = ""
        self._after = Offset(0)
        self._done = Offset(0)
        self._told = Offset(0)
        self._told_s = 0.0
        self._batches: Iterator[tuple[Mapping[SchemaId, TableSchema], pa.RecordBatch | None, Offset]] | None = None

    def open(self, after: Offset) -> Sequence[TableSchema]:
        """Begin behind the cursor, or further."""
        return self._reached(lambda: self._open(after))

    def next(self, timeout_s: float) -> Arrived | None:
        """Return the next changes. What has come is handed over batch by batch, so that little is held at once."""
        return self._reached(lambda: self._next(timeout_s))

    def acknowledge(self, through: Offset) -> None:
        """Move the cursor, not more often than is needed."""
        self._done = through
        if time.monotonic() - self._told_s >= _ACKNOWLEDGE_S:
            self._reached(self._acknowledge)

    def close(self) -> None:
        """Disconnect, with the cursor where it belongs."""
        try:
            if self._subscription:
                self._reached(self._acknowledge)
        except SourceUnavailableError:
            return  # the sink goes on where it was; its messages are known by their ids
        finally:
            self._reading.close()
            self._calling.close()

    def _open(self, after: Offset) -> Sequence[TableSchema]:
        config = self._config
        kept = self._store.get(self._name)
        self._batches = None
        if kept is None or kept.source != config.source:
            subscription, cursor = self._calling.subscribe(config.source, config.tables, config.start)
            self._store.put(self._name, source=config.source, url=config.shown_url, subscription=subscription)
        else:
            subscription = kept.subscription
            cursor = Offset(self._calling.call("cdc.ack", {"sub_id": subscription, "offset": 0})["acked_offset"])
        self._subscription = subscription
        self._after = self._done = self._told = Offset(max(cursor, after))
        tables = self._calling.info(config.source, config.tables).tables
        return [table.versions[-1].schema for table in tables]

    def _next(self, timeout_s: float) -> Arrived | None:
        if self._batches is None:
            if self._told < self._done and time.monotonic() - self._told_s >= _ACKNOWLEDGE_S:
                self._acknowledge()
            wait_s = max(1, round(timeout_s))
            self._batches = self._reading.poll(self._config.source, self._after, self._config.tables, wait_s)
        try:
            schemas, batch, through = next(self._batches)
        except BaseException:
            self._batches = None
            raise
        if batch is None:
            self._batches = None
        moved, self._after = through > self._after, through
        if batch is not None and batch.num_rows:
            return Arrived(list(Chunk(batch, schemas).changes()), through)
        return Arrived((), through) if moved else None

    def _acknowledge(self) -> None:
        self._told_s = time.monotonic()
        if self._told < self._done:
            self._calling.call("cdc.ack", {"sub_id": self._subscription, "offset": self._done})
            self._told = self._done

    def _reached(self, use: Callable[[], _T]) -> _T:
        try:
            return use()
        except (ConnectionFailed, TimedOut) as error:
            self._batches = None
            raise SourceUnavailableError(f"the server cannot be reached: {error}") from error
