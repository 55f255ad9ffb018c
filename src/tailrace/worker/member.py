"""One worker as the main process sees it: its channel, and what it serves.

The main process stays the only one that decides: what a worker runs is open here, so that pauses, ends and limits reach
it as they reach all feeds, and what a worker wants to be done, such as moving a cursor, is done here.
"""

import asyncio
import logging
import socket
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

from msgspec import Struct

from tailrace.delivery.http.hand_over import Answer
from tailrace.metrics import Metrics
from tailrace.model.errors import MetadataError, TailraceError
from tailrace.model.subscription import Subscription
from tailrace.subscription.feed import Feed
from tailrace.subscription.service import SubscriptionService
from tailrace.worker.channel import Channel
from tailrace.worker.figures import add_figures
from tailrace.worker.message import (
    FROM_WORKER,
    Acknowledge,
    Answered,
    ChangeSubscription,
    Cut,
    Ended,
    EndFeed,
    Figures,
    FromWorker,
    GivenFeed,
    Gone,
    Measure,
    PauseFeed,
    Ready,
    Reason,
    Say,
    reason_of,
)

__all__ = ["Job", "Member"]

logger = logging.getLogger(__name__)

_UNSENT_BYTES_MAX = 1 << 20
"""A worker that has this much to read gets no more connections."""


class Job:
    """One request that a worker answers."""

    def __init__(self, number: int, sources: Sequence[str], answer: Answer | None) -> None:
        self.number = number
        self.sources = sources
        self.answer = answer
        self.feeds: list[int] = []
        """Numbers of the feeds that were given for it."""

        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the request is answered, or the worker is gone."""

    def end(self) -> None:
        """Note that the request is answered."""
        if not self.ended.done():
            self.ended.set_result(None)


class Member:
    """One worker, from its start to its end. `lost` is set when it is gone."""

    def __init__(self, number: int, end: socket.socket, service: SubscriptionService, metrics: Metrics) -> None:
        self.number = number
        self.ready = asyncio.Event()
        self.lost = asyncio.Event()
        self.served: Counter[str] = Counter()
        """How many feeds and intervals of each source it serves."""

        self.connections: set[int] = set()
        """Jobs whose connection is open."""

        self.channel: Channel[FromWorker] = Channel(end, FROM_WORKER, self._received, self._gone)
        self._service = service
        self._metrics = metrics
        self._jobs: dict[int, Job] = {}
        self._feeds: dict[int, Feed] = {}
        self._feeds_given = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._measured: asyncio.Future[None] | None = None

    @property
    def load(self) -> int:
        """Return how many feeds and intervals it serves."""
        return self.served.total()

    @property
    def takes_more(self) -> bool:
        """Tell whether it can be given something to serve."""
        return self.ready.is_set() and not self.lost.is_set() and self.channel.unsent_bytes < _UNSENT_BYTES_MAX

    def give(self, job: Job, feed: Feed) -> GivenFeed:
        """Have an open feed run by it for a job; return what it needs to know of the feed."""
        self._feeds_given += 1
        number = self._feeds_given
        job.feeds.append(number)
        self._feeds[number] = feed
        feed.runner = _Runner(self.channel, number)
        subscription = self._service.subscription(feed.subscription.id).record
        restriction = None if feed.restriction is None else feed.restriction.identity
        return GivenFeed(number, subscription, feed.after, restriction)

    async def serve(self, job: Job, message: Struct, connection: socket.socket) -> None:
        """Have a job done, and return when it is, or when the worker is gone. Cancelled, it cuts the connection."""
        self._jobs[job.number] = job
        self.connections.add(job.number)
        self.served.update(job.sources)
        try:
            self.channel.send(message, connection)
            if self.lost.is_set():
                return
            await job.ended
        except asyncio.CancelledError:
            self.channel.send(Cut(job.number))
            raise
        finally:
            del self._jobs[job.number]
            self.served.subtract(job.sources)
            for number in job.feeds:
                self._feeds.pop(number).runner = None

    async def measure(self) -> None:
        """Have its figures counted as they are now; return when they are, or when it is gone."""
        if not self.ready.is_set() or self.lost.is_set():
            return
        if self._measured is None:
            self._measured = asyncio.get_running_loop().create_future()
            self.channel.send(Measure())
        await asyncio.shield(self._measured)

    def _received(self, message: FromWorker, _connection: socket.socket | None) -> None:
        match message:
            case Ready():
                self.ready.set()
            case Acknowledge():
                self._do(self._acknowledge(message))
            case Say():
                self._do(self._answer(message))
            case Ended():
                if message.job in self._jobs:
                    self._jobs[message.job].end()
            case Gone():
                self.connections.discard(message.job)
            case Figures():
                self._count(message)

    def _gone(self) -> None:
        """Release what it served: its connections are closed by the system."""
        self.lost.set()
        self.connections.clear()
        for job in self._jobs.values():
            job.end()
        if self._measured is not None and not self._measured.done():
            self._measured.set_result(None)

    def _do(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _acknowledge(self, asked: Acknowledge) -> None:
        failed = None
        try:
            await self._service.subscription(asked.subscription).acknowledge(asked.offset)
        except MetadataError:
            failed = Reason.STOPPED
        except TailraceError as error:
            failed = reason_of(error)
        self.channel.send(Answered(asked.ask, failed=failed))

    async def _answer(self, asked: Say) -> None:
        job = self._jobs.get(asked.job)
        if job is None or job.answer is None:
            return  # it has ended meanwhile
        try:
            self.channel.send(Answered(asked.ask, await job.answer(asked.text)))
        except Exception:
            logger.exception("a command could not be carried out")
            self.channel.send(Cut(asked.job))

    def _count(self, figures: Figures) -> None:
        add_figures(figures, self._metrics, self._service.lags)
        for number, place in figures.places.items():
            feed = self._feeds.get(number)
            if feed is not None and place > feed.after:
                feed.advance(place)
        if figures.measured and self._measured is not None:
            self._measured.set_result(None)
            self._measured = None


class _Runner:
    """Passes on to a worker what happens to a feed that it runs."""

    def __init__(self, channel: Channel[FromWorker], feed: int) -> None:
        self._channel = channel
        self._feed = feed

    def pause(self, *, paused: bool) -> None:
        """Hold back changes, or no longer."""
        self._channel.send(PauseFeed(self._feed, paused))

    def end(self, reason: TailraceError) -> None:
        """End the feed."""
        self._channel.send(EndFeed(self._feed, reason_of(reason)))

    def change(self, subscription: Subscription) -> None:
        """Take the subscription as it is now: of several changes that wait, the last one counts."""
        newest: Callable[[], Struct] = lambda: ChangeSubscription(subscription)  # noqa: E731
        self._channel.post(("subscription", subscription.id), newest)
