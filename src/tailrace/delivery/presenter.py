"""The presenter: encodes each chunk once per view and filter and keeps the newest results for whoever comes next."""

import asyncio
from collections import OrderedDict
from collections.abc import Hashable
from contextlib import suppress
from functools import partial

from msgspec import Struct, structs
from prometheus_client import Counter

from tailrace.delivery.encoded import Encoded
from tailrace.delivery.kept import ABSENT, Kept
from tailrace.delivery.stretch import Kind, Stretch, stretches_of
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

_PREPARED_ROWS_MIN = 512
"""Below this many changes, events are made on the event loop: a thread would take longer to be woken."""

_MAKING_MAX = 2
"""Most batches that threads encode at a time."""

_AHEAD_FEEDS_MAX = 2
_AHEAD_BATCHES_MAX = 3
"""For how many feeds at a time the next batches are prepared, and how many of each at most."""

_RUN_BYTES = 5 << 19
"""About how much of the log's files is read and encoded in one go; a block may be larger."""

_RUNS_MAX = 2
"""How many such runs are under way at a time ahead of a feed."""

_READY_BYTES = 3 << 20
"""With this many bytes of events ready behind a feed's place, no more is prepared for it."""

_DENSE_MAX = 256
"""Of how many kinds of stretches it is remembered that most changes pass."""


class Presenter:
    """Gives the encoded events of feed batches. For tasks of one event loop.

    What was encoded is kept up to `bytes_max`. The log never changes what an offset means, so a chunk is known by its
    source, its first and last offsets and what was picked of it, even when it was read again.

    Feeds that replay, and want most of what they read, do not ask for chunks: see `find` and `bring`.
    """

    def __init__(self, bytes_max: int, encoded_changes: Counter) -> None:
        self.turns = Turns()
        """What streams wait for before they ask for events."""

        self._encoded_changes = encoded_changes
        self._kept = Kept(bytes_max)
        self._making: dict[_Key, asyncio.Task[None]] = {}
        self._runs: dict[tuple[Kind, Offset], _Run] = {}
        """Those that bring events, by the place that they begin at."""

        self._dense: OrderedDict[Kind, None] = OrderedDict()
        self._room = asyncio.Semaphore(_MAKING_MAX)
        self._ahead: dict[Feed, set[asyncio.Task[None]]] = {}

    @property
    def size_bytes(self) -> int:
        """Return about how much memory is held by what is kept."""
        return self._kept.size_bytes

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
        if len(batch.chunk) < _PREPARED_ROWS_MIN:
            await self.turns.take(behind)
            return
        view = _view_for(batch, view)
        key = _key_of(batch, view)
        if key not in self._kept and self._is_worth_preparing(batch, view):
            making = self._making.get(key)
            await asyncio.shield(making or self._make(key, batch, view))
            if making is None:
                return  # few are made at a time, which is turn enough
        await self.turns.take(behind)

    def is_ready(self, batch: FeedBatch, view: View) -> bool:
        """Tell whether `encoded` has nothing to do that would be worth preparing."""
        view = _view_for(batch, view)
        return _key_of(batch, view) in self._kept or not self._is_worth_preparing(batch, view)

    def look_ahead(self, feed: Feed, view: View, place: Offset) -> None:
        """Begin to prepare what a feed will want after a place, while its stream writes what it has.

        A few batches at most lie ready for a feed that does not move on, and a few feeds are served so at a time: with
        many there is always one that has something to write.
        """
        if feed not in self._ahead and len(self._ahead) >= _AHEAD_FEEDS_MAX:
            return
        if self.brings(feed, view, place):
            self._run_ahead(feed, _kind_of(feed, view), place)
        elif feed not in self._ahead:
            self._prepare_for(feed, asyncio.create_task(self._go_ahead(feed, view, place)))

    # ---- what is found by its place

    def brings(self, feed: Feed, view: View, place: Offset) -> bool:
        """Tell whether what follows a place is to be read, filtered and encoded in one go, as most of it is wanted."""
        return feed.is_stored(place) and view.wire.by_columns(view) and _kind_of(feed, view) in self._dense

    def find(self, feed: Feed, view: View) -> Stretch | None:
        """Return the events of what follows a feed's place, where they are kept; for a feed that stands in the store.

        Nothing of the log is read for that.
        """
        return self._kept.stretch(_kind_of(feed, view), Offset(feed.after + 1))

    async def bring(self, feed: Feed, view: View) -> Stretch | None:
        """Have the events of what follows a feed's place made, and return them when it is the caller's turn.

        Those who want the same wait for the same. None where they could not be made, or have lost their room to others:
        then the feed is asked for its changes.
        """
        kind, place = _kind_of(feed, view), feed.after
        waited = (kind, place) in self._runs
        await asyncio.shield(self._run_from(kind, feed, place).task)
        if waited:
            await self.turns.take(feed.behind)
        return self._kept.stretch(kind, Offset(place + 1))

    def _run_ahead(self, feed: Feed, kind: Kind, place: Offset) -> None:
        """Have the next runs begun, side by side, as far as they are worth it."""
        ready_bytes, place = self._ready(kind, place)
        for _ in range(_RUNS_MAX):
            if ready_bytes >= _READY_BYTES or not feed.is_stored(place):
                break
            run = self._run_from(kind, feed, place)
            self._prepare_for(feed, run.task)
            if run.behind is None:
                break
            place = run.behind

    def _run_from(self, kind: Kind, feed: Feed, place: Offset) -> "_Run":
        """Return the run that begins at a place; begin it where it is not under way."""
        run = self._runs.get((kind, place))
        if run is None:
            behind = feed.run_behind(place, _RUN_BYTES)
            task = asyncio.create_task(self._bring(kind, feed, place))
            task.add_done_callback(lambda _: self._runs.pop((kind, place)))
            run = self._runs[kind, place] = _Run(task, behind)
        return run

    async def _bring(self, kind: Kind, feed: Feed, place: Offset) -> None:
        """Read, filter and encode what follows a place, in one trip to a worker thread, and keep it."""
        with suppress(Exception):  # whoever asks the feed for its changes meets the error
            async with self._room:
                if self._kept.stretch(kind, Offset(place + 1)) is not None:
                    return  # it was made meanwhile for one who stands elsewhere in the same block
                take = partial(stretches_of, kind=kind, filter_=feed.filter, whole=self._kept.whole)
                made = [stretch for block in await feed.lend(place, _RUN_BYTES, take) for stretch in block]
            for stretch in made:
                self._kept.put_stretch(kind, stretch)
            self._encoded_changes.inc(sum(stretch.encoded.count for stretch in made if stretch.fresh))
            self._note_share(kind, sum(stretch.encoded.count for stretch in made), made[-1].last - made[0].first + 1)

    def _note_share(self, kind: Kind, passing: int, changes: int) -> None:
        """Remember whether most changes pass: where few do, it is better to read those alone."""
        if passing < changes * _SHARE_MIN:
            self._dense.pop(kind, None)
            return
        self._dense[kind] = None
        if len(self._dense) > _DENSE_MAX:
            self._dense.popitem(last=False)

    def _ready(self, kind: Kind, place: Offset) -> tuple[int, Offset]:
        """Return how many bytes of events are ready behind a place, and up to where."""
        ready_bytes = 0
        while ready_bytes < _READY_BYTES and (found := self._kept.stretch(kind, Offset(place + 1))) is not None:
            ready_bytes += found.encoded.data_bytes
            place = found.last
        return ready_bytes, place

    def _prepare_for(self, feed: Feed, task: asyncio.Task[None]) -> None:
        tasks = self._ahead.setdefault(feed, set())
        if task not in tasks:
            tasks.add(task)
            task.add_done_callback(partial(self._prepared_for, feed))

    def _prepared_for(self, feed: Feed, task: asyncio.Task[None]) -> None:
        self._ahead[feed].discard(task)
        if not self._ahead[feed]:
            del self._ahead[feed]

    # ---- what is found by its chunk

    def encoded(self, batch: FeedBatch, view: View) -> Encoded:
        """Return the events of a batch's chunk that pass its filter, all of them, as `view` wants them.

        Images are cut to the columns that the filter names.

        Raises:
            PredicateError: The filter failed on a change.
        """
        chunk = batch.chunk
        view = _view_for(batch, view)
        key = _key_of(batch, view)
        kept = self._kept.get(key)
        if kept is not ABSENT:
            return kept or self._whole(batch, view)
        rows = batch.rows()
        if batch.filter.is_restricted:
            encoded = self._encode(batch, rows, view)  # what a whole chunk says is not for everybody
            self._kept.put(key, encoded)
            return encoded
        if len(rows) == len(chunk) and view.mark is None:
            # Remember that the filter passes everything, and share the bytes of the whole chunk: many filters do on
            # most chunks.
            self._kept.put(key, None)
            return self._whole(batch, view)
        # Other tables lack the columns to which images are cut: then nothing but the wanted rows is encoded.
        if view.columns or view.mark is not None or len(rows) < len(chunk) * _SHARE_MIN:
            encoded = self._encode(batch, rows, view)
        else:
            encoded = self._whole(batch, view).pick(rows)
        self._kept.put(key, encoded)
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
            if batch.chunk.picked is None:
                self._note_share((batch.source, view, batch.filter), len(rows), len(batch.chunk))
            if len(rows) < len(batch.chunk):
                self._kept.put(key, encoded)
            else:
                self._kept.put(key, None)
                self._kept.put(_whole_key_of(batch, view), encoded)

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
                if key not in self._making and key not in self._kept:
                    making.append(self._make(key, batch, wanted))
                place = batch.chunk.last
        if making:
            await asyncio.wait(making)

    def _whole(self, batch: FeedBatch, view: View) -> Encoded:
        """Return the events of all changes of the batch's chunk, ignoring its filter."""
        key = _whole_key_of(batch, view)
        whole = self._kept.get(key)
        if whole is not None and whole is not ABSENT:
            return whole
        whole = self._encode(batch, range(len(batch.chunk)), view)
        self._kept.put(key, whole)
        return whole

    def _encode(self, batch: FeedBatch, rows: Rows, view: View) -> Encoded:
        self._encoded_changes.inc(len(rows))
        return view.wire.encode(batch.chunk, rows, view)


class _Run(Struct, frozen=True):
    """What brings the events that follow a place, and the place behind the last of them, where that is known."""

    task: asyncio.Task[None]
    behind: Offset | None


def _view_for(batch: FeedBatch, view: View) -> View:
    """Return a view with what the filter says about it: the same rows cut or marked otherwise are other bytes."""
    if batch.filter.columns:
        view = structs.replace(view, columns=batch.filter.columns)
    if isinstance(batch.filter, QueryFilter):
        view = structs.replace(view, mark=batch.filter.mark)
    return view


def _kind_of(feed: Feed, view: View) -> Kind:
    """Return the kind of what a feed is sent; only for one whose filter says nothing about the view."""
    return feed.subscription.source, view, feed.filter


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
