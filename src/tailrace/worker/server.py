"""The inside of a worker: connections that the main process hands over, and the streams on them.

A request is parsed and answered as in the main process, by the same protocols and the same streams. What it may see,
and from where, was decided there.
"""

import asyncio
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from msgspec import Struct
from starlette.requests import HTTPConnection, Request
from starlette.types import Message, Receive, Scope, Send

from tailrace.clock import SystemClock
from tailrace.delivery.http.application import with_cors
from tailrace.delivery.http.hand_over import StreamKind
from tailrace.delivery.http.options import HttpOptions
from tailrace.delivery.http.server import Adopted, adopting
from tailrace.delivery.presenter import Presenter
from tailrace.interface.bulk.log import answer_interval
from tailrace.interface.skeindb.framing import SseFraming
from tailrace.interface.skeindb.sse import answer_feeds, framing_of_many
from tailrace.interface.skeindb.stream_options import stream_options
from tailrace.interface.skeindb.ws import converse
from tailrace.metrics import Metrics
from tailrace.model.number import Offset
from tailrace.sql.dialect import dialect_of
from tailrace.subscription.cel.library import load_library
from tailrace.subscription.feed import Feed
from tailrace.subscription.log_view import LogView
from tailrace.subscription.restrict import Restrictions
from tailrace.subscription.source_filter import FilterCache
from tailrace.subscription.wake import Wake
from tailrace.worker.figures import Tally
from tailrace.worker.message import (
    Ended,
    EndFeed,
    GivenFeed,
    Gone,
    PauseFeed,
    Say,
    ServeFeeds,
    ServeInterval,
    SetUp,
)
from tailrace.worker.served import Asking, ServedSubscriptions

__all__ = ["WorkerServer", "WorkerTools"]

_FILTERS_KEPT = 1024
_JOB = "tailrace.job"


class WorkerTools(Struct, frozen=True):
    """What the streams of a worker share."""

    service: ServedSubscriptions
    presenter: Presenter
    metrics: Metrics
    options: HttpOptions


class _Job:
    """One request that is handed over."""

    def __init__(self, given: ServeFeeds | ServeInterval, feeds: dict[int, Feed]) -> None:
        self.given = given
        self.feeds = feeds
        self.begun = False


class WorkerServer:
    """Serves what is handed over of some logs. `send` says something to the main process. For one event loop."""

    def __init__(
        self, setup: SetUp, logs: Mapping[str, LogView], http: HttpOptions, send: Callable[[Struct], None]
    ) -> None:
        self._send = send
        self._logs = logs
        clock = SystemClock()
        self._wakes = {name: Wake(log, clock) for name, log in self._logs.items()}
        self._running = [asyncio.create_task(wake.run()) for wake in self._wakes.values()]
        self._restrictions = Restrictions({name: dialect_of(source.dialect) for name, source in setup.sources.items()})
        self._filters = FilterCache(_FILTERS_KEPT)
        self.asking = Asking(send)
        self.service = ServedSubscriptions(self._logs, self.asking, setup.retention_changes)
        metrics = Metrics()
        self._tools = WorkerTools(
            self.service, Presenter(http.encoded_bytes_max, metrics.encoded_changes), metrics, http
        )
        self._tally = Tally(metrics, {name: wake.lags for name, wake in self._wakes.items()})
        self._feeds: dict[int, Feed] = {}
        self._places: dict[int, Offset] = {}
        self._adopted: dict[int, Adopted] = {}
        self._adopt = adopting(with_cors(self._answer, setup.origins))

    def serve(self, given: ServeFeeds | ServeInterval, connection: socket.socket | None) -> None:
        """Answer a request on a connection; where no descriptor was left for that, its client sees it closed."""
        if connection is None:
            self._send(Ended(given.job))
            self._send(Gone(given.job))
            return
        feeds = {one.feed: self._feed(one) for one in given.feeds} if isinstance(given, ServeFeeds) else {}
        self._feeds |= feeds
        for feed in feeds.values():
            self.service.begin(feed.subscription)
        job = _Job(given, feeds)
        self._adopted[given.job] = self._adopt(connection, given.head, {_JOB: job}, lambda: self._gone(job))

    def cut(self, job: int) -> None:
        """Close the connection of a job at once."""
        if job in self._adopted:
            self._adopted[job].cut()

    def interrupt(self, message: PauseFeed | EndFeed) -> None:
        """Pause, resume or end a feed, if it has not ended already."""
        feed = self._feeds.get(message.feed)
        if feed is None:
            return
        if isinstance(message, PauseFeed):
            feed.pause(paused=message.paused)
        else:
            feed.end(message.reason.error(feed.subscription))

    def report(self, *, measured: bool = False) -> None:
        """Say what was counted since the last report."""
        places = {number: feed.after for number, feed in self._feeds.items()}
        moved = {number: place for number, place in places.items() if self._places.get(number) != place}
        self._places = places
        figures = self._tally.take(moved, measured=measured)
        if measured or figures.counts or moved:
            self._send(figures)

    async def stop(self, timeout_s: float) -> None:
        """Have connections finish what is on its way, and close them."""
        for adopted in list(self._adopted.values()):
            adopted.finish()
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self._adopted:  # noqa: ASYNC110  each ends by itself
                    await asyncio.sleep(0.01)

    def _feed(self, given: GivenFeed) -> Feed:
        record = given.subscription
        restriction = None if given.restriction is None else self._restrictions.of(given.restriction)
        wanted = self._filters.get(record.target, record.filter)
        log, wake = self._logs[record.source], self._wakes[record.source]
        return Feed(record, log, wake, wanted, given.after, restriction)

    def _gone(self, job: _Job) -> None:
        self._adopted.pop(job.given.job, None)
        if not job.begun:  # the client had left before its request was parsed
            self._end(job)
        self._send(Gone(job.given.job))

    def _end(self, job: _Job) -> None:
        self._send(self._tally.take({number: feed.after for number, feed in job.feeds.items()}))
        for number, feed in job.feeds.items():
            feed.release()
            self._feeds.pop(number, None)
            self._places.pop(number, None)
            self.service.end(feed.subscription.id)
        self._send(Ended(job.given.job))

    @contextmanager
    def _begun(self, job: _Job) -> Iterator[None]:
        job.begun = True
        try:
            yield
        finally:
            self._end(job)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request of a job. A connection has one: it is closed after the answer."""
        job: _Job = scope["state"][_JOB]
        assert not job.begun
        with self._begun(job):
            match job.given:
                case ServeInterval(interval=interval):
                    never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                    log = self._logs[interval.source]
                    metrics = self._tools.metrics
                    await answer_interval(metrics, log, interval, never, scope, receive, _closing(send))
                case ServeFeeds(kind=StreamKind.WS):
                    await self._converse(job, scope, receive, send)
                case ServeFeeds(kind=kind):
                    feeds = list(job.feeds.values())
                    await _load_for(feeds)
                    framing = SseFraming() if kind is StreamKind.SSE else framing_of_many(feeds)
                    await answer_feeds(self._tools, Request(scope), feeds, framing, receive, _closing(send))

    async def _converse(self, job: _Job, scope: Scope, receive: Receive, send: Send) -> None:
        (feed,) = job.feeds.values()
        await _load_for([feed])

        async def answer(text: str | None) -> bytes:
            return (await self.asking.ask(lambda number: Say(number, job.given.job, text))).data

        await receive()
        try:
            options = stream_options(HTTPConnection(scope).query_params, [feed.subscription])
            await converse(self._tools, feed, options, answer, receive, send)
        except OSError:
            return  # the client left


async def _load_for(feeds: list[Feed]) -> None:
    """Load what filters need that few have."""
    if any(feed.subscription.filter.cel is not None for feed in feeds):
        await asyncio.to_thread(load_library)


def _closing(send: Send) -> Send:
    """Return what sends an answer after which the connection is closed: the next request is not for a worker."""

    async def send_closing(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers: list[Any] = list(message["headers"])
            message = {**message, "headers": [*headers, (b"connection", b"close")]}
        await send(message)

    return send_closing
