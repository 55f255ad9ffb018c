"""Reading a subscription of this very process for a sink: a thread takes what the feed has, one batch at a time."""

import asyncio
import contextlib
import time
from collections.abc import Coroutine, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from tailrace.message.relay import Arrived
from tailrace.message.sink import SinkConfig
from tailrace.meta.sink_store import SinkStore
from tailrace.model.errors import NotFoundError, UnknownSubscriptionError
from tailrace.model.number import Offset
from tailrace.model.op import ROW_OPS
from tailrace.model.start import After, CursorStart, Earliest, Latest
from tailrace.model.subscription import (
    FilterOptions,
    Format,
    Include,
    SourceTarget,
    SubscribeRequest,
    Subscription,
    SubscriptionId,
    parse_sub_id,
    sub_id_of,
)
from tailrace.model.table import TableSchema
from tailrace.subscription.feed import Feed
from tailrace.subscription.feed_batch import FeedBatch
from tailrace.subscription.open_feeds import OpenFeed
from tailrace.subscription.service import SubscriptionService
from tailrace.subscription.source_filter import SourceFilter

__all__ = ["FeedReader"]

_T = TypeVar("_T")

_ACKNOWLEDGE_S = 0.1
"""How often the cursor is written, at most. A sink that is killed sends so much again, if its target keeps no mark."""

_STARTS: dict[str, CursorStart] = {"earliest": Earliest(), "latest": Latest()}


class FeedReader:
    """Reads for one sink; see `tailrace.message.relay.SinkReader`. The service belongs to the event loop."""

    def __init__(
        self,
        service: SubscriptionService,
        loop: asyncio.AbstractEventLoop,
        name: str,
        config: SinkConfig,
        store: SinkStore,
    ) -> None:
        self._service = service
        self._loop = loop
        self._name = name
        self._config = config
        self._store = store
        self._number: SubscriptionId | None = None
        self._head: Offset | None = None
        """Where the log was when the sink first looked: what comes while its target is away is for it, too."""

        self._open: OpenFeed | None = None
        self._feed: Feed | None = None
        self._acknowledging: Future[Any] | None = None
        self._after = Offset(0)
        self._done = Offset(0)
        self._acknowledged = Offset(0)
        self._acknowledged_s = 0.0

    @property
    def after(self) -> Offset:
        """Return the offset behind which it began to read."""
        return self._after

    def tables(self) -> Sequence[TableSchema]:
        """Return the tables that the sink is for, as far as the log knows them."""
        return self._call(self._tables())

    def open(self, after: Offset) -> str:
        """Begin behind the cursor, or further."""
        stored = self._store.get(self._name)
        former = parse_sub_id(stored.subscription) if stored is not None and stored.subscription else None
        number = former if stored is not None and stored.source == self._config.source else None
        subscription = self._call(self._subscribed(number))
        began_us = 0 if stored is None else stored.began_us
        if subscription.id != number:
            url, source, sub_id = self._config.shown_url, self._config.source, sub_id_of(subscription.id)
            goes_on = None if number is None else began_us
            began_us = self._store.put(self._name, source=source, url=url, subscription=sub_id, began_us=goes_on)
            if former is not None:
                self._call(self._close(former))
        self._number = subscription.id
        self._call(self._begin(subscription, after))
        return str(began_us)

    def next(self, timeout_s: float) -> Arrived | None:
        """Return the next changes."""
        batch = self._call(self._next(timeout_s))
        if batch is None:
            self._tell(0.0)
            return None
        rows = [row for row in batch.rows() if batch.chunk.offset_of(row) > batch.after]
        if not rows:
            return Arrived((), batch.chunk.last)
        return Arrived(list(batch.chunk.changes(rows)), batch.chunk.last)

    def acknowledge(self, through: Offset) -> None:
        """Move the cursor, not more often than is needed: each move is a write to the metadata."""
        self._done = through
        self._tell(_ACKNOWLEDGE_S)

    def close(self) -> None:
        """Close the feed, with the cursor where it belongs."""
        acknowledging, self._acknowledging = self._acknowledging, None
        try:
            if acknowledging is not None and acknowledging.exception() is not None:
                self._acknowledged = self._after
            if self._number is not None and self._acknowledged < self._done:
                self._call(self._acknowledge(self._done))
                self._acknowledged = self._done
        finally:
            self._call(self._end())

    def _tell(self, pause_s: float) -> None:
        """Have the cursor written, unless that was done just now or is being done.

        Raises:
            MetadataError: It could not be written the last time. The next call tries again.
        """
        acknowledging = self._acknowledging
        if acknowledging is not None and acknowledging.done():
            self._acknowledging = None
            try:
                acknowledging.result()
            except BaseException:
                self._acknowledged = self._after
                raise
        if (
            self._acknowledged < self._done
            and self._acknowledging is None
            and time.monotonic() - self._acknowledged_s >= pause_s
        ):
            self._acknowledged, self._acknowledged_s = self._done, time.monotonic()
            self._acknowledging = self._submit(self._acknowledge(self._done))

    async def _subscribed(self, number: SubscriptionId | None) -> Subscription:
        """Return the sink's subscription, made the first time, and again with its cursor for other tables."""
        start = _STARTS[self._config.start]
        if isinstance(start, Latest) and self._head is not None:
            start = After(self._head)
        if number is not None:
            try:
                subscription = self._service.subscription(number).record
            except UnknownSubscriptionError:
                raise NotFoundError(
                    f"the subscription of the sink {self._name!r} was closed: remove the sink to start over"
                ) from None
            if subscription.target == self._target:
                return subscription
            start = After(subscription.cursor)
        return await self._service.subscribe(
            SubscribeRequest(
                self._target,
                filter=FilterOptions(ROW_OPS),
                include=Include(before=True, after=True),
                format=Format.PLAIN_JSON,
                start=start,
            )
        )

    async def _begin(self, subscription: Subscription, after: Offset) -> None:
        await self._end()
        self._open = self._service.feed(subscription.id, After(max(subscription.cursor, after)))
        self._feed = self._open.__enter__()
        self._after = self._done = self._acknowledged = self._feed.after

    async def _tables(self) -> Sequence[TableSchema]:
        if self._head is None:
            self._head = self._service.logs[self._config.source].head
        wanted = SourceFilter(self._target, FilterOptions(ROW_OPS))
        known = self._service.logs[self._config.source].schemas()
        newest = {schema.table: schema for _, schema in sorted(known.items()) if wanted.wants(schema.table)}
        return list(newest.values())

    async def _next(self, timeout_s: float) -> FeedBatch | None:
        assert self._feed is not None
        self._feed.advance(max(self._feed.after, self._done))
        return await self._feed.next(timeout_s)

    async def _acknowledge(self, through: Offset) -> None:
        assert self._number is not None
        await self._service.subscription(self._number).acknowledge(through)

    async def _close(self, number: SubscriptionId) -> None:
        with contextlib.suppress(UnknownSubscriptionError):
            await self._service.subscription(number).close()

    async def _end(self) -> None:
        if self._open is not None:
            self._open.__exit__(None, None, None)
            self._open = self._feed = None

    @property
    def _target(self) -> SourceTarget:
        return SourceTarget(self._config.source, self._config.tables)

    def _call(self, use: Coroutine[Any, Any, _T]) -> _T:
        return self._submit(use).result()

    def _submit(self, use: Coroutine[Any, Any, _T]) -> "Future[_T]":
        return asyncio.run_coroutine_threadsafe(use, self._loop)
