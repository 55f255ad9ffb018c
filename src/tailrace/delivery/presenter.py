"""The presenter: encodes each chunk once per view and filter and keeps the newest results for whoever comes next."""

import asyncio
from collections import OrderedDict
from collections.abc import Hashable
from contextlib import suppress

from msgspec import structs
from prometheus_client import Counter

from tailrace.delivery.encoded import Encoded
from tailrace.delivery.turns import Turns
from tailrace.delivery.view import View
from tailrace.model.errors import TailraceError
from tailrace.model.number import Offset
from tailrace.subscription.feed import Feed
from tailrace.subscription.feed_batch import FeedBatch
from tailrace.subscription.filter import Filter, Rows
from tailrace.subscription.query.query_filter import QueryFilter

__all__ = ["Presenter"]

_Key = tuple[str, Offset, Offset, Hashable, View, Filter | None]

_SHARE_MIN = 0.25
"""From this share of a chunk on, a filter picks its events out of those of the whole chunk."""

_ABSENT = Encoded.of_list((), (), Offset(0))
"""Stands for what is not kept."""

_PREPARED_ROWS_MIN = 512
"""Below this many changes, events are made on the event loop: a thread would take longer to be woken."""

_MAKING_MAX = 2
"""Most batches that threads encode at a time."""

_AHEAD_FEEDS_MAX = 2
_AHEAD_BATCHES_MAX = 3
"""For how many feeds at a time the next batches are prepared, and how many of each at most."""

_ENTRY_BYTES = 512
"""About what an entry takes besides its events."""


class Presenter:
    """Gives the encoded events of feed batches. For tasks of one event loop.

    What was encoded is kept, least recently used out first, up to `bytes_max`. The log never changes what an offset
    means, so a chunk is known by its source, its first and last offsets and what was picked of it, even when it was
    read again.
    """

    def __init__(self, bytes_max: int, encoded_changes: Counter) -> None:
        self.turns = Turns()
        """What streams wait for before they ask for events."""

        self._bytes_max = bytes_max
        self._encoded_changes = encoded_changes
        self._cache: OrderedDict[_Key, Encoded | None] = OrderedDict()
        self._making: dict[_Key, asyncio.Task[None]] = {}
        self._room = asyncio.Semaphore(_MAKING_MAX)
        self._ahead: dict[Feed, asyncio.Task[None]] = {}
        self._bytes = 0

    @property
    def size_bytes(self) -> int:
        """Return about how much memory is held by what is kept."""
        return self._bytes

    @property
    def feeds_ahead(self) -> int:
        """Return for how many feeds something is being prepared that they will want next."""
        return len(self._ahead)

    async def prepare(self, batch: FeedBatch, view: View, behind: int) -> None:
        """Have the events of a batch made beside the event loop where that is worth it; then it is the caller's turn.

        `behind` is how many changes the caller is behind the head: those that follow have their turn first.
        Those who want the same wait for the same. Only a few are made at a time, so that what is made is not dropped
        before its caller could take it.
        """
        view = _view_for(batch, view)
        key = _key_of(batch, view)
        if key not in self._cache and self._is_worth_preparing(batch, view):
            making = self._making.get(key)
            await asyncio.shield(making or self._make(key, batch, view))
            if making is None:
                return  # few are made at a time, which is turn enough
        await self.turns.take(behind)

    def is_ready(self, batch: FeedBatch, view: View) -> bool:
        """Tell whether `encoded` has nothing to do that would be worth preparing."""
        view = _view_for(batch, view)
        return _key_of(batch, view) in self._cache or not self._is_worth_preparing(batch, view)

    def look_ahead(self, feed: Feed, view: View, place: Offset) -> None:
        """Begin to prepare what a feed will want after a place, while its stream writes what it has.

        At most three batches lie ready for a feed that does not move on, and a few feeds are served so at a time: with
        many there is always one that has something to write.
        """
        if feed in self._ahead or len(self._ahead) >= _AHEAD_FEEDS_MAX:
            return
        task = asyncio.create_task(self._go_ahead(feed, view, place))
        self._ahead[feed] = task
        task.add_done_callback(lambda _: self._ahead.pop(feed))

    def encoded(self, batch: FeedBatch, view: View) -> Encoded:
        """Return the events of a batch's chunk that pass its filter, all of them, as `view` wants them.

        Images are cut to the columns that the filter names.

        Raises:
            PredicateError: The filter failed on a change.
        """
        chunk = batch.chunk
        view = _view_for(batch, view)
        key = _key_of(batch, view)
        cached = self._cache.get(key, _ABSENT)
        if cached is not _ABSENT:
            self._cache.move_to_end(key)
            return cached or self._whole(batch, view)
        rows = batch.rows()
        if batch.filter.is_restricted:
            encoded = self._encode(batch, rows, view)  # what a whole chunk says is not for everybody
            self._keep(key, encoded)
            return encoded
        if len(rows) == len(chunk) and view.mark is None:
            # Remember that the filter passes everything, and share the bytes of the whole chunk: many filters do on
            # most chunks.
            self._keep(key, None)
            return self._whole(batch, view)
        # Other tables lack the columns to which images are cut: then nothing but the wanted rows is encoded.
        if view.columns or view.mark is not None or len(rows) < len(chunk) * _SHARE_MIN:
            encoded = self._encode(batch, rows, view)
        else:
            encoded = self._whole(batch, view).pick(rows)
        self._keep(key, encoded)
        return encoded

    def _is_worth_preparing(self, batch: FeedBatch, view: View) -> bool:
        """Tell whether a thread should make the events: there are many, and Python has little to do with it.

        Where Python has to look at each change, a thread would only compete for the interpreter's lock.
        """
        few = len(batch.chunk) < _PREPARED_ROWS_MIN
        return not (few or batch.filter.looks_at_rows or batch.filter.is_restricted) and view.wire.by_columns(view)

    def _make(self, key: _Key, batch: FeedBatch, view: View) -> asyncio.Task[None]:
        """Make the events of a batch in a worker thread, and keep them. From now on it is known that they are made."""
        making = asyncio.create_task(self._make_beside(key, batch, view))
        self._making[key] = making
        making.add_done_callback(lambda _: self._making.pop(key))
        return making

    async def _make_beside(self, key: _Key, batch: FeedBatch, view: View) -> None:
        with suppress(Exception):  # whoever asks for the events has them made on the loop, and meets the error
            async with self._room:
                rows, encoded = await asyncio.to_thread(_made, batch, view)
            self._encoded_changes.inc(len(rows))
            if len(rows) < len(batch.chunk):
                self._keep(key, encoded)
            else:
                self._keep(key, None)
                self._keep(_whole_key_of(batch, view), encoded)

    async def _go_ahead(self, feed: Feed, view: View, place: Offset) -> None:
        """Prepare the next batches of a feed, side by side: the loop may be writing when one of them is done."""
        making: list[asyncio.Task[None]] = []
        with suppress(TailraceError, OSError):  # whoever asks for those changes meets the error
            for _ in range(_AHEAD_BATCHES_MAX):
                batch = await feed.following(place)
                if batch is None:
                    break
                wanted = _view_for(batch, view)
                key = _key_of(batch, wanted)
                if not self._is_worth_preparing(batch, wanted):
                    break
                if key not in self._making and key not in self._cache:
                    making.append(self._make(key, batch, wanted))
                place = batch.chunk.last
        if making:
            await asyncio.wait(making)

    def _whole(self, batch: FeedBatch, view: View) -> Encoded:
        """Return the events of all changes of the batch's chunk, ignoring its filter."""
        key = _whole_key_of(batch, view)
        whole = self._cache.get(key)
        if whole is not None:
            self._cache.move_to_end(key)
            return whole
        whole = self._encode(batch, range(len(batch.chunk)), view)
        self._keep(key, whole)
        return whole

    def _encode(self, batch: FeedBatch, rows: Rows, view: View) -> Encoded:
        self._encoded_changes.inc(len(rows))
        return view.wire.encode(batch.chunk, rows, view)

    def _keep(self, key: _Key, encoded: Encoded | None) -> None:
        """Keep a result; None says that all changes of the chunk pass and the whole chunk's events serve."""
        self._cache[key] = encoded
        self._bytes += _charge(encoded)
        # Counted by encoded bytes and not by entries: one chunk may be a kilobyte or megabytes.
        while self._bytes > self._bytes_max:
            _, oldest = self._cache.popitem(last=False)
            self._bytes -= _charge(oldest)


def _view_for(batch: FeedBatch, view: View) -> View:
    """Return a view with what the filter says about it: the same rows cut or marked otherwise are other bytes."""
    if batch.filter.columns:
        view = structs.replace(view, columns=batch.filter.columns)
    if isinstance(batch.filter, QueryFilter):
        view = structs.replace(view, mark=batch.filter.mark)
    return view


def _key_of(batch: FeedBatch, view: View) -> _Key:
    chunk = batch.chunk
    return (batch.source, chunk.first, chunk.last, chunk.picked, view, batch.filter)


def _whole_key_of(batch: FeedBatch, view: View) -> _Key:
    """Return the key of all changes of a batch's chunk, ignoring its filter."""
    chunk = batch.chunk
    return (batch.source, chunk.first, chunk.last, chunk.picked, view, None)


def _made(batch: FeedBatch, view: View) -> tuple[Rows, Encoded]:
    """Return the rows of a batch that pass, and their events; for a worker thread."""
    rows = batch.rows()
    return rows, view.wire.encode(batch.chunk, rows, view)


def _charge(encoded: Encoded | None) -> int:
    return _ENTRY_BYTES + (0 if encoded is None else encoded.size_bytes)
