"""All workers of a server: started, kept running, and given streams to serve. See docs/decisions/workers.md."""

import asyncio
import logging
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from time import monotonic

from msgspec import Struct
from starlette.types import Scope

from tailrace.delivery.http.detach import DETACH
from tailrace.delivery.http.hand_over import Answer, Interval, StreamKind
from tailrace.log.log import Log
from tailrace.metrics import Metrics
from tailrace.model.number import Offset
from tailrace.model.subscription import QueryTarget
from tailrace.subscription.feed import Feed
from tailrace.subscription.service import SubscriptionService
from tailrace.worker.member import Job, Member
from tailrace.worker.message import FollowedSource, Grown, ServeFeeds, ServeInterval, SetUp, Stop

__all__ = ["Fleet"]

logger = logging.getLogger(__name__)

_MODULE = "tailrace.cli.worker"
"""What a worker runs: a fresh process, for a fork of one that has threads may find their locks held."""

_START_S_MAX = 20.0
"""So long a server waits for its workers before it listens; streams that come earlier than a worker are served here."""

_AGAIN_S_FIRST, _AGAIN_S_MAX = 0.2, 30.0
"""How long after its end a worker is started again, the first time and at most."""

_GOOD_S = 60.0
"""A worker that has run for so long counts as good: the next one is started at once if it ends."""

_HORIZON_S = 0.5
"""How often workers are notified of a horizon that has moved while nothing was appended."""

_STOP_S_MAX = 4.0
_MEASURE_S_MAX = 1.0


class Fleet:
    """The workers of one server, which serve what is handed over. `begin` them early, `set_up` when there are logs.

    For tasks of one event loop. It is the `HandOver` of the HTTP interface.
    """

    def __init__(self, count: int, metrics: Metrics, logging_level: str, logging_form: str) -> None:
        self._count = count
        self._metrics = metrics
        self._command = ("-m", _MODULE, logging_level, logging_form)
        self._logs: Mapping[str, Log] = {}
        self._members: dict[int, Member] = {}
        self._ready = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._started: dict[int, tuple[asyncio.subprocess.Process, socket.socket]] = {}
        self._jobs = 0
        self._setup: tuple[SetUp, SubscriptionService] | None = None
        metrics.workers.set_function(lambda: sum(member.takes_more for member in self._members.values()))

    @property
    def connections(self) -> int:
        """Return how many connections workers have."""
        return sum(len(member.connections) for member in self._members.values())

    async def begin(self) -> None:
        """Start the processes, which load what they need meanwhile."""
        for number in range(1, self._count + 1):
            self._started[number] = await self._start(number)

    async def set_up(
        self,
        sources: Mapping[str, FollowedSource],
        logs: Mapping[str, Log],
        service: SubscriptionService,
        origins: Sequence[str],
        ring_changes: int,
    ) -> None:
        """Say what there is to serve, and return when all workers are ready, or have taken too long."""
        self._logs = logs
        self._setup = SetUp(dict(sources), list(origins), service.retention_changes, ring_changes), service
        for source, log in logs.items():
            log.listen(_grown(self, source))
        self._tasks = [asyncio.create_task(self._keep(number)) for number in self._started]
        self._tasks.append(asyncio.create_task(self._follow_horizons()))
        with suppress(TimeoutError):
            async with asyncio.timeout(_START_S_MAX):
                while sum(member.takes_more for member in self._members.values()) < self._count:
                    self._ready.clear()
                    await self._ready.wait()

    async def stop(self) -> None:
        """End all workers; they send what is on its way first."""
        for member in self._members.values():
            member.channel.send(Stop())
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for number, (_, end) in self._started.items():
            if number not in self._members:  # it was never set up, and ends with its channel
                end.close()
        await asyncio.gather(*(_end(process) for process, _ in self._started.values()))
        for member in self._members.values():
            member.channel.close()

    async def measure(self) -> None:
        """Have all workers' figures counted as they are now."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_MEASURE_S_MAX):
                await asyncio.gather(*(member.measure() for member in list(self._members.values())))

    # ---- what is handed over

    async def feeds(self, scope: Scope, kind: StreamKind, feeds: Sequence[Feed], answer: Answer | None = None) -> bool:
        """Have open feeds served, and return True when they have ended; False where they are to be served here."""
        if not all(map(_is_portable, feeds)):
            return False
        sources = [feed.subscription.source for feed in feeds]
        wire = "ws" if kind is StreamKind.WS else "sse"

        def message(member: Member, job: Job, head: bytes) -> Struct:
            return ServeFeeds(job.number, head, kind, [member.give(job, feed) for feed in feeds])

        opened = self._metrics.feeds_open.labels(wire)
        opened.inc(len(feeds))
        try:
            return await self._serve(scope, sources, answer, message)
        finally:
            opened.dec(len(feeds))

    async def interval(self, scope: Scope, interval: Interval, credentials: asyncio.Future[None]) -> bool:
        """Have changes sent in bulk, and return True when that has ended; False where it is to be done here."""
        serving = asyncio.ensure_future(
            self._serve(scope, [interval.source], None, lambda _, job, head: ServeInterval(job.number, head, interval))
        )
        credentials.add_done_callback(lambda _: serving.cancel())
        try:
            return await serving
        except asyncio.CancelledError:
            if credentials.done() and serving.cancelled():
                return True
            serving.cancel()
            raise

    async def _serve(
        self,
        scope: Scope,
        sources: Sequence[str],
        answer: Answer | None,
        message: Callable[[Member, Job, bytes], Struct],
    ) -> bool:
        member = self._least_busy()
        detach = scope.get("extensions", {}).get(DETACH)
        found = None if member is None or detach is None else detach()
        if member is None or found is None:
            return False
        self._jobs += 1
        job = Job(self._jobs, sources, answer)
        for source in set(sources):
            member.channel.send(self._grown(source))  # it may not have been notified of what it had nobody for
        await member.serve(job, message(member, job, found.head), found.connection)
        return True

    def _least_busy(self) -> Member | None:
        able = [member for member in self._members.values() if member.takes_more]
        return min(able, key=lambda member: member.load, default=None)

    # ---- logs

    def tell_grown(self, source: str) -> None:
        """Notify the workers that serve a source that its log has grown."""
        for member in self._members.values():
            if member.served[source]:
                member.channel.post(("grown", source), lambda: self._grown(source))

    def _grown(self, source: str) -> Grown:
        log = self._logs[source]
        return Grown(source, log.state, len(log.schemas()))

    async def _follow_horizons(self) -> None:
        """Notify workers when retention has moved a horizon."""
        known: dict[str, Offset] = {}
        while True:
            await asyncio.sleep(_HORIZON_S)
            for source, log in self._logs.items():
                if known.get(source) != log.horizon:
                    known[source] = log.horizon
                    self.tell_grown(source)

    # ---- processes

    async def _start(self, number: int) -> tuple[asyncio.subprocess.Process, socket.socket]:
        ours, its = socket.socketpair()
        with its:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *self._command,
                str(its.fileno()),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                pass_fds=(its.fileno(),),
            )
        logger.info("worker started", extra={"worker": number, "pid": process.pid})
        return process, ours

    async def _keep(self, number: int) -> None:
        """Keep a worker running: start it again when it ends."""
        again_s = _AGAIN_S_FIRST
        while True:
            process, end = self._started[number]
            begin_s = monotonic()
            member = self._join(number, end)
            ready = asyncio.create_task(self._note_ready(member))
            await member.lost.wait()
            ready.cancel()
            code = await _end(process)
            logger.error("worker ended", extra={"worker": number, "pid": process.pid, "code": code})
            self._metrics.worker_restarts.inc()
            again_s = _AGAIN_S_FIRST if monotonic() - begin_s > _GOOD_S else again_s
            await asyncio.sleep(again_s)
            again_s = min(_AGAIN_S_MAX, 2 * again_s)
            self._started[number] = await self._start(number)

    def _join(self, number: int, end: socket.socket) -> Member:
        assert self._setup is not None
        setup, service = self._setup
        member = Member(number, end, service, self._metrics)
        self._members[number] = member
        self._metrics.worker_feeds.labels(str(number)).set_function(lambda: member.load)
        member.channel.send(setup)
        for source in self._logs:
            member.channel.send(self._grown(source))
        return member

    async def _note_ready(self, member: Member) -> None:
        await member.ready.wait()
        logger.info("worker ready", extra={"worker": member.number})
        self._ready.set()


def _grown(fleet: Fleet, source: str) -> Callable[[], None]:
    return lambda: fleet.tell_grown(source)


def _is_portable(feed: Feed) -> bool:
    """Tell whether a feed needs nothing but the log: queries and snapshots need the database."""
    return not isinstance(feed.subscription.target, QueryTarget) and feed.snapshot is None


async def _end(process: asyncio.subprocess.Process) -> int:
    """Wait for a process to end, which it does by itself when its channel is gone; kill it otherwise."""
    try:
        async with asyncio.timeout(_STOP_S_MAX):
            return await process.wait()
    except TimeoutError:
        process.kill()
        return await process.wait()
