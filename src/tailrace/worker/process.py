"""The process of a worker: takes messages until its channel ends."""

import asyncio
import os
import socket

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

__all__ = ["run"]

_REPORT_S = 1.0
_STOP_S_MAX = 3.0


async def run(descriptor: int) -> None:
    """Serve what comes over a channel, until the main process says that it stops. When that is gone, end at once."""
    worker = _Worker(socket.socket(fileno=descriptor))
    try:
        await worker.run()
    finally:
        worker.channel.close()


class _Worker:
    def __init__(self, end: socket.socket) -> None:
        self.channel: Channel[ToWorker] = Channel(end, TO_WORKER, self._received, _leave)
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

    def _received(self, message: ToWorker, connection: socket.socket | None) -> None:
        if isinstance(message, SetUp):
            self._server = WorkerServer(message, self.channel.send)
            self.channel.send(Ready())
            return
        if isinstance(message, Stop):
            self._stop.set()
            return
        server = self._server
        assert server is not None
        match message:
            case Grown():
                server.follow(message)
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


def _leave() -> None:
    """End without a word: the main process is gone, and whoever reads a stream must find another."""
    os._exit(0)
