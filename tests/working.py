"""Workers without processes: the other end of each channel is in the same event loop, over the same logs."""

import asyncio
import socket
from contextlib import asynccontextmanager

from tailrace.delivery.http.options import HttpOptions
from tailrace.log.state import State
from tailrace.worker.fleet import Fleet
from tailrace.worker.message import FollowedSource
from tailrace.worker.process import Worker

NOWHERE = State(head=0, last_index=0, horizon=1, active_index=0, synced_bytes=0, time_us=0)


class Process:
    """Stands for the process of a worker; `kill` cuts its channel and its connections, as the system does."""

    pid = 0

    def __init__(self, worker):
        self.worker = worker
        self.task = asyncio.create_task(worker.run())

    async def wait(self):
        await asyncio.wait([self.task])
        return 0

    def kill(self):
        self.worker.vanish()
        self.task.cancel()


class LocalWorker(Worker):
    def vanish(self):
        """Be gone like a process that is killed."""
        for job in list(self._server._adopted):
            self._server.cut(job)
        self._channel.close()


class LocalFleet(Fleet):
    """A fleet whose workers share the logs of the main process, which are in memory."""

    def __init__(self, count, metrics, logs, http):
        super().__init__(count, metrics, "info", "json")
        self.shared = logs
        self.http = http
        for log in logs.values():
            log.follow, log.state = (lambda *_: None), NOWHERE

    async def _start(self, number):
        ours, its = socket.socketpair()
        worker = LocalWorker(its, lambda _: self.shared, self.http, lambda: None)
        return Process(worker), ours

    def kill(self, number):
        """Kill a worker."""
        self._started[number][0].kill()


@asynccontextmanager
async def fleet_of(logs, service, metrics, http=None, origins=(), count=1):
    """Give workers for the length of a block."""
    fleet = LocalFleet(count, metrics, logs, http or HttpOptions())
    await fleet.begin()
    try:
        sources = {name: FollowedSource("", "sqlite") for name in logs}
        await fleet.set_up(sources, logs, service, origins, 1024)
        yield fleet
    finally:
        await fleet.stop()
