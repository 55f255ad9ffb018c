"""The process of a worker: takes messages until its channel ends."""

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from tailrace.delivery.http.options import HttpOptions
from tailrace.log.files import DiskFiles
from tailrace.log.followed import FollowedLog
from tailrace.log.options import LogOptions
from tailrace.log.state import State
from tailrace.model.errors import LogError
from tailrace.reclaim import Reclaimer
from tailrace.subscription.log_view import LogView
from tailrace.worker.channel import Channel
from tailrace.worker.message import (
    TO_WORKER,
    Answered,
    ChangeSubscription,
    Cut,
    EndFeed,
    Grown,
    Measure,
    PauseFeed,
    Ready,
    ServeFeeds,
    ServeInterval,
    SetUp,
    Stop,
    ToWorker,
)
from tailrace.worker.server import WorkerServer

__all__ = ["FollowableLog", "Worker", "run"]

logger = logging.getLogger(__name__)

_REPORT_S = 1.0
_STOP_S_MAX = 3.0


async def run(descriptor: int) -> None:
    """Serve what comes over a channel, until the main process says that it stops. When that is gone, end at once."""
    reclaiming = asyncio.create_task(Reclaimer().run())
    await Worker(socket.socket(fileno=descriptor), _follow, HttpOptions(), _leave).run()
    reclaiming.cancel()


class FollowableLog(LogView, Protocol):
    """A log that another process writes; see `FollowedLog`."""

    def follow(self, state: State, schema_count: int) -> None:
        """Take how far the writer has published it."""

    def close(self) -> None:
        """Let everybody know that there will be no more."""


class Worker:
    """The end of a channel that serves. `open_logs` opens what is to be followed; `lost` is called at the other's end.

    For one event loop.
    """

    def __init__(
        self,
        end: socket.socket,
        open_logs: Callable[[SetUp], Mapping[str, FollowableLog]],
        http: HttpOptions,
        lost: Callable[[], None],
    ) -> None:
        self._channel: Channel[ToWorker] = Channel(end, TO_WORKER, self._received, lost)
        self._open_logs = open_logs
        self._http = http
        self._logs: Mapping[str, FollowableLog] = {}
        self._server: WorkerServer | None = None
        self._stop = asyncio.Event()

    async def run(self) -> None:
        """Serve until stopped."""
        while not self._stop.is_set():
            try:
                async with asyncio.timeout(_REPORT_S):
                    await self._stop.wait()
            except TimeoutError:
                if self._server is not None:
                    self._server.report()
        if self._server is not None:
            await self._server.stop(_STOP_S_MAX)
        self._channel.close()

    def _received(self, message: ToWorker, connection: socket.socket | None) -> None:
        if isinstance(message, SetUp):
            self._logs = self._open_logs(message)
            self._server = WorkerServer(message, self._logs, self._http, self._channel.send)
            self._channel.send(Ready())
            return
        if isinstance(message, Stop):
            self._stop.set()
            return
        server = self._server
        assert server is not None
        match message:
            case Grown():
                self._follow(message)
            case ServeFeeds() | ServeInterval():
                server.serve(message, connection)
            case Cut(job):
                server.cut(job)
            case PauseFeed() | EndFeed():
                server.interrupt(message)
            case ChangeSubscription(subscription):
                server.service.change(subscription)
            case Answered():
                server.asking.answered(message)
            case Measure():
                server.report(measured=True)

    def _follow(self, grown: Grown) -> None:
        log = self._logs[grown.source]
        try:
            log.follow(grown.state, grown.schemas)
        except (LogError, OSError):
            logger.exception("the log cannot be followed: its feeds end", extra={"source": grown.source})
            log.close()


def _follow(setup: SetUp) -> Mapping[str, FollowableLog]:
    options = LogOptions(ring_changes_max=setup.ring_changes)
    return {
        name: FollowedLog(DiskFiles(Path(source.directory), make=False), options)
        for name, source in setup.sources.items()
    }


def _leave() -> None:
    """End without a word: the main process is gone, and whoever reads a stream must find another."""
    os._exit(0)
