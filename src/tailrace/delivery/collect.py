"""Collecting events of a feed into one write: as many as fit the limits, waiting when there are none yet."""

import asyncio
from collections.abc import Callable
from functools import partial

from msgspec import Struct

from tailrace.delivery.encoded import Encoded, Piece
from tailrace.delivery.presenter import Presenter
from tailrace.delivery.view import View
from tailrace.model.errors import PredicateError, TailraceError
from tailrace.model.number import Offset
from tailrace.subscription.feed import Feed
from tailrace.subscription.feed_batch import FeedBatch

__all__ = ["CollectLimits", "collect"]


class CollectLimits(Struct, frozen=True):
    """Bounds of one write."""

    changes_max: int
    """Most events."""

    bytes_max: int
    """Most bytes; one event may be larger."""

    bytes_enough: int | None = None
    """With this many bytes from one chunk, nothing is taken from the next: joining would copy them. None: no limit."""

    ahead: bool = False
    """Whether the feed will be asked for more at once, so that what follows is worth preparing."""

    scan_changes_max: int = 1 << 16
    """Most changes looked at, wanted or not, so that a narrow filter over a long log lets others have their turn."""

    def filled(self, size_bytes: int, count: int) -> bool:
        """Tell whether this many bytes are enough, or one more event of the mean size would not fit."""
        enough = self.bytes_enough is not None and size_bytes >= self.bytes_enough
        return enough or size_bytes + size_bytes // count > self.bytes_max


async def collect(feed: Feed, presenter: Presenter, view: View, limits: CollectLimits, timeout_s: float) -> Piece:
    """Return the next events of a feed and move it past them; none when none came in time or within the scan limit.

    Raises:
        BehindHorizonError: The feed's place was lost before anything was collected.
        UnknownSubscriptionError: The subscription was closed.
        LogClosedError: The log was closed, or the service stops.
        PredicateError: The filter failed on the next change, and nothing before it was left to collect.
    """
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + timeout_s
    begin = feed.after
    pieces: list[bytes] = []
    count = size_bytes = 0
    last = Offset(0)
    while count < limits.changes_max and size_bytes < limits.bytes_max and feed.after - begin < limits.scan_changes_max:
        try:
            # Wait only for the first event. What is in hand must not be delayed in the hope of more.
            wait_s = None if count else max(0.0, deadline_s - loop.time())
            found = await _stored(feed, presenter, view, wait_s) or await _read(feed, presenter, view, wait_s)
        except TailraceError:
            if count:
                break  # what is in hand goes out first; the next call meets the error again
            raise
        if found is None:
            break
        encoded, delivered = found
        bytes_left = limits.bytes_max - size_bytes
        piece = encoded.cut(feed.after, limits.changes_max - count, bytes_left)
        # One event may exceed the limit, but only as the first of a piece; else it opens the next one.
        if count and piece.count and len(piece.data) > bytes_left:
            break
        # Also without events: a filter that matched nothing has still scanned this far, and heartbeats say so.
        feed.advance(piece.through)
        if piece.count:
            delivered()
            pieces.append(piece.data)
            count += piece.count
            last = piece.last
            size_bytes += len(piece.data)
            if feed.caught_up or limits.filled(size_bytes, count):
                break  # a feed is mostly caught up after one live change
    if limits.ahead and count and not feed.caught_up:
        presenter.look_ahead(feed, view, feed.after)
    return Piece(pieces[0] if len(pieces) == 1 else b"".join(pieces), count, feed.after, last)


_Found = tuple[Encoded, Callable[[], None]]
"""Events that follow a feed's place, and what notes that they are on their way."""


async def _stored(feed: Feed, presenter: Presenter, view: View, wait_s: float | None) -> _Found | None:
    """Return what is found or made by a feed's place alone; None where the feed is to be asked for its changes."""
    if not feed.stands_in_store():
        return None
    stretch = presenter.find(feed, view)
    if stretch is None and wait_s is not None and presenter.brings(feed, view, feed.after):
        stretch = await presenter.bring(feed, view)
    elif stretch is not None and wait_s is not None:
        await presenter.turns.take(feed.behind)
    return None if stretch is None else (stretch.encoded, partial(feed.delivered_stored, stretch.commit_time_us))


async def _read(feed: Feed, presenter: Presenter, view: View, wait_s: float | None) -> _Found | None:
    """Return what is made of a feed's changes; None where there are none in time, or they are yet to be made.

    Without a time to wait there is something in hand, which goes out first.
    """
    if wait_s is None and presenter.brings(feed, view, feed.after):
        return None
    batch = await feed.next(wait_s or 0.0)
    if batch is None:
        return None
    # One turn for a whole piece, taken when there is something to encode: a stream without new changes costs no turn.
    if wait_s is not None:
        await presenter.prepare(batch, view, feed.behind)
    elif not presenter.is_ready(batch, view):
        return None
    return _encoded(batch, presenter, view), partial(feed.delivered, batch)


def _encoded(batch: FeedBatch, presenter: Presenter, view: View) -> Encoded:
    """Return the events of a batch; where its filter fails, of what comes before that."""
    try:
        return presenter.encoded(batch, view)
    except PredicateError:
        return presenter.encoded(batch.before_failure(), view)
