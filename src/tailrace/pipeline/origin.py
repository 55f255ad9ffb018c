"""Where a pipeline reads changes from: what that promises, and a running server. Blocking, for one thread."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

import pyarrow as pa
from msgspec import Struct

from tailrace.client.bulk import BulkClient, BulkOptions
from tailrace.model.number import Offset, SchemaId
from tailrace.model.table import TableSchema
from tailrace.model.wanted import Conditions

__all__ = ["CUTS_MAX", "WAIT_S", "Batches", "Origin", "ServerOrigin", "Window"]

CUTS_MAX = 10_000
"""Most cuts that an origin is asked for at once."""

WAIT_S = 0.2
"""Longest time to wait for changes: as long may a query take longer to stop."""

Batches = Iterator[tuple[Mapping[SchemaId, TableSchema], pa.RecordBatch]]
"""Changes in order, with the schema versions that they refer to."""


class Window(Struct, frozen=True):
    """What can be read of a source now, and all schema versions of the tables that were asked for."""

    head: Offset
    horizon: Offset
    schemas: Mapping[SchemaId, TableSchema]


class Origin(Protocol):
    """The log of one source. What it is asked for by offset is answered alike for ever, or not at all.

    All methods raise `BehindHorizonError` where retention has removed what is asked for.
    """

    def window(self, tables: Sequence[str], *, beyond: int | None = None) -> Window:
        """Return what there is now of the tables, all of them where none is named.

        With `beyond`, wait until the head is beyond that offset, at most `WAIT_S`.
        """

    def place(self, start: str) -> Offset:
        """Return the offset after which a start begins: `earliest`, `latest`, an offset, or a time."""

    def cuts(
        self, after: int, through: int, *, changes: int, bytes_max: int | None = None, count: int = CUTS_MAX
    ) -> list[Offset]:
        """Return where an interval can be cut so that no commit is divided; see `find_cuts`."""

    def batches(self, after: int, through: int, tables: Sequence[str], conditions: Conditions | None = None) -> Batches:
        """Yield the changes of the tables in an interval, in order, with the schema versions that they refer to.

        What does not meet the `conditions` is left out where that is quick to see, and need not even be read.
        """

    def subscribe(self, tables: Sequence[str], after: int) -> str | None:
        """Make a durable subscription that begins after an offset; return its id. None where nobody keeps any."""

    def acknowledge(self, subscription: str, offset: int) -> None:
        """Tell how far the subscription's reader is."""

    def unsubscribe(self, subscription: str) -> None:
        """Remove a subscription."""

    def close(self) -> None:
        """Give up connections. Safe to repeat."""


class ServerOrigin:
    """The log as a server gives it."""

    def __init__(self, url: str, source: str, token: str | None = None, options: BulkOptions | None = None) -> None:
        self._client = BulkClient(url, token, options)
        self._source = source

    def window(self, tables: Sequence[str], *, beyond: int | None = None) -> Window:
        """Ask the server, which waits."""
        info = self._client.info(self._source, tables, beyond=beyond, wait_s=WAIT_S)
        return Window(info.head, info.horizon, info.schemas())

    def place(self, start: str) -> Offset:
        """Ask the server."""
        after = self._client.info(self._source, place=start).after
        assert after is not None
        return after

    def cuts(
        self, after: int, through: int, *, changes: int, bytes_max: int | None = None, count: int = CUTS_MAX
    ) -> list[Offset]:
        """Ask the server."""
        return self._client.cuts(self._source, after, through, changes=changes, bytes_max=bytes_max, count=count)

    def batches(self, after: int, through: int, tables: Sequence[str], conditions: Conditions | None = None) -> Batches:
        """Stream from the server."""
        return self._client.batches(self._source, after, through, tables, conditions)

    def subscribe(self, tables: Sequence[str], after: int) -> str | None:
        """Have the server keep a subscription."""
        return self._client.subscribe(self._source, tables, after)[0]

    def acknowledge(self, subscription: str, offset: int) -> None:
        """Acknowledge on the server."""
        self._client.call("cdc.ack", {"sub_id": subscription, "offset": offset}, again=True)

    def unsubscribe(self, subscription: str) -> None:
        """Remove it on the server."""
        self._client.call("cdc.close", {"sub_id": subscription})

    def close(self) -> None:
        """Close the connection."""
        self._client.close()
