"""The query processes of one database: started when they are needed, shared, killed when their time is over.

A process serves one request at a time. Its caller gets an answer within the time of the request and a short grace, in
which a statement that can be interrupted ends by itself; after that the process is killed, and the next request starts
another one. All methods belong to one event loop.
"""

import asyncio
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import msgspec

import tailrace
from tailrace.metrics import Metrics
from tailrace.model.errors import QueryTimeoutError, SourceUnavailableError
from tailrace.source.sqlite.process_message import (
    HEADER,
    Answer,
    AskCommit,
    Commit,
    ProcessFailure,
    ProcessLimits,
    Request,
    decode_answer,
    encode,
)

__all__ = ["STOPS", "ProcessPool", "QueryProcess"]

logger = logging.getLogger(__name__)

STOPS = "the server stops"

_GRACE_S = 0.5
"""How long after the end of its time a statement may end by itself."""

_COMMIT_S_MAX = 60.0
"""How long a commit may take once the server has agreed to it; it waits for the disk alone."""

_IDLE_S = 60.0
"""How long a process that nobody needs stays; the last one stays for good."""

_WAIT_S_MAX = 5.0
"""How long to wait for a killed process to be gone."""

_READ_BYTES = 1 << 18
_LARGE_BYTES = 1 << 18
"""Answers from this size on are decoded in a thread."""

_START = "import sys; sys.path[:0] = sys.argv[4:]; from tailrace.source.sqlite.query_process import main; main()"
_ENVIRONMENT = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "SQLITE_TMPDIR", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
"""What a process sees of the environment: no secrets."""


class ProcessPool:
    """Processes for one database. How many run at one time is the concern of those who lease them."""

    def __init__(self, path: Path, metrics: Metrics | None = None, limits: ProcessLimits | None = None) -> None:
        self._path = path
        self._metrics = metrics or Metrics()
        self._limits = limits or ProcessLimits()
        self._idle: list[tuple[QueryProcess, asyncio.TimerHandle]] = []
        self._busy: set[QueryProcess] = set()
        self._leaving: set[asyncio.Task[None]] = set()
        self._starter = ThreadPoolExecutor(1, thread_name_prefix="sqlite-process")
        self._stopping = False
        self._leases = 0
        self._ended = asyncio.Event()

    @asynccontextmanager
    async def lease(self) -> AsyncIterator["QueryProcess"]:
        """Give a process that nobody else uses. One that is killed meanwhile, or left in the middle, is not used again.

        Raises:
            SourceUnavailableError: No process can be started now, or the server stops.
        """
        self._leases += 1
        try:
            process = self._take() or await self._start()
            self._busy.add(process)
            try:
                yield process
            finally:
                self._busy.discard(process)
                self._give_back(process)
        finally:
            self._leases -= 1
            if not self._leases:
                self._ended.set()

    async def close(self) -> None:
        """Kill all processes but those that commit, which are waited for; nothing more is started."""
        self._stopping = True
        for process, timer in self._idle:
            timer.cancel()
            self._let_go(process)
        self._idle.clear()
        for process in self._busy:
            process.stop()
        if self._leases:
            self._ended.clear()
            await self._ended.wait()  # a killed process answers nothing, and a commit has a limit
        await asyncio.to_thread(self._starter.shutdown)
        await asyncio.gather(*self._leaving)

    def _take(self) -> "QueryProcess | None":
        """Return the process that was used last, so that those that are not needed grow old."""
        if self._stopping:
            raise SourceUnavailableError(STOPS)
        while self._idle:
            process, timer = self._idle.pop()
            timer.cancel()
            if process.alive:
                return process
            self._let_go(process)
        return None

    async def _start(self) -> "QueryProcess":
        starting = asyncio.get_running_loop().run_in_executor(self._starter, _spawn, self._path, self._limits)
        try:
            process = QueryProcess(*await asyncio.shield(starting))
        except asyncio.CancelledError:
            starting.add_done_callback(self._keep)
            raise
        except OSError as error:
            logger.warning("a query process cannot be started", extra={"reason": str(error)})
            raise SourceUnavailableError("no process for the query can be started now: try again later") from error
        self._metrics.query_processes.started.inc()
        if self._stopping:
            self._let_go(process)
            raise SourceUnavailableError(STOPS)
        return process

    def _keep(self, starting: "asyncio.Future[tuple[subprocess.Popen[bytes], socket.socket]]") -> None:
        """Keep a process for which nobody waits any more for the next one who does."""
        if not starting.cancelled() and starting.exception() is None:
            self._metrics.query_processes.started.inc()
            self._give_back(QueryProcess(*starting.result()))

    def _give_back(self, process: "QueryProcess") -> None:
        if process.clean and not self._stopping:
            timer = asyncio.get_running_loop().call_later(_IDLE_S, self._retire, process)
            self._idle.append((process, timer))
        else:
            self._let_go(process)

    def _retire(self, process: "QueryProcess") -> None:
        if len(self._idle) > 1:
            self._idle = [(one, timer) for one, timer in self._idle if one is not process]
            self._let_go(process)

    def _let_go(self, process: "QueryProcess") -> None:
        """End a process and have it taken from the system's table."""
        if process.killed:
            self._metrics.query_processes.killed.inc()
        self._metrics.query_processes.started.dec()
        process.kill()
        task = asyncio.create_task(process.gone())
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)


class QueryProcess:
    """One process, as the server sees it."""

    def __init__(self, process: "subprocess.Popen[bytes]", channel: socket.socket) -> None:
        self._process = process
        self._channel = channel
        self._loop = asyncio.get_running_loop()
        self._committing = False
        self._stopping = False
        self.clean = True
        """Whether it waits for a request: not while it has one, nor when it was killed."""
        self.killed = False
        """Whether its time was over before its request was done."""

    @property
    def pid(self) -> int:
        """Return the number that the system gave the process."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Tell whether the process runs, as far as the system knows."""
        return self._process.poll() is None

    async def ask(self, request: Request, left_s: float, bytes_max: int, late: str) -> Answer:
        """Return the answer to a request, which has `left_s` from now on; beyond `bytes_max` it is not read.

        Raises:
            InvalidRequestError: The request cannot be sent.
            QueryTimeoutError: The time is over; `late` is what it says. Nothing of the request was committed.
            SourceUnavailableError: The process ended, or the server stops.
        """
        message = encode(request)
        self.clean = False
        try:
            async with asyncio.timeout(max(0.0, left_s) + _GRACE_S):
                answer = await self._exchange(message, bytes_max)
        except TimeoutError:
            self.killed = True
            self.kill()
            raise QueryTimeoutError(late) from None
        except asyncio.CancelledError:
            self.kill()  # nobody waits for it any more
            raise
        except (OSError, EOFError, msgspec.DecodeError, RecursionError) as error:
            self.kill()
            if self._stopping:
                raise SourceUnavailableError(STOPS) from None
            logger.warning("a query process ended", extra={"pid": self.pid, "reason": type(error).__name__})
            raise SourceUnavailableError("the process that ran the query has ended: try again") from None
        if not isinstance(answer, AskCommit):
            self.clean = True
        if isinstance(answer, ProcessFailure) and answer.detail:
            logger.warning("a database cannot be used", extra={"reason": answer.detail})
        return answer

    async def commit(self, bytes_max: int) -> Answer:
        """Agree to the commit that the process asked for, and return its answer.

        Raises:
            SourceUnavailableError: The process ended. It is not known whether the statement was committed.
        """
        self._committing = True
        try:
            async with asyncio.timeout(_COMMIT_S_MAX):
                answer = await self._exchange(encode(Commit()), bytes_max)
        except (OSError, EOFError, TimeoutError, msgspec.DecodeError) as error:  # a TimeoutError is an OSError
            self.kill()
            logger.warning("a commit was not answered", extra={"pid": self.pid, "reason": type(error).__name__})
            reason = "the process ended while it committed: look whether the statement took effect"
            raise SourceUnavailableError(reason) from None
        finally:
            self._committing = False
        self.clean = True
        return answer

    def stop(self) -> None:
        """End the process because the server stops, unless it commits."""
        self._stopping = True
        if not self._committing:
            self.kill()

    def kill(self) -> None:
        """End the process at once. What it has not committed is rolled back."""
        self.clean = False
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGKILL)

    async def gone(self) -> None:
        """Wait until the process is gone, for a while, and let go of it."""
        self._channel.close()
        with suppress(subprocess.TimeoutExpired):
            await asyncio.to_thread(self._process.wait, _WAIT_S_MAX)

    async def _exchange(self, message: bytes, bytes_max: int) -> Answer:
        await self._loop.sock_sendall(self._channel, message)
        taken = bytearray()
        while len(taken) < HEADER.size:
            taken += await self._read()
        (size_bytes,) = HEADER.unpack_from(taken)
        if size_bytes > bytes_max:
            raise EOFError("an answer is too long")
        while len(taken) < HEADER.size + size_bytes:
            taken += await self._read()
        body = taken[HEADER.size :]
        if size_bytes < _LARGE_BYTES:
            return decode_answer(body)
        return await asyncio.to_thread(decode_answer, body)

    async def _read(self) -> bytes:
        part = await self._loop.sock_recv(self._channel, _READ_BYTES)
        if not part:
            raise EOFError
        return part


def _spawn(path: Path, limits: ProcessLimits) -> "tuple[subprocess.Popen[bytes], socket.socket]":
    """Start a process. Blocking.

    It is isolated from the environment of the server: no variables of Python, no packages but those that we found.
    """
    ours, its = socket.socketpair()
    try:
        ours.setblocking(False)
        root = Path(tailrace.__file__).parent.parent
        process = subprocess.Popen(  # noqa: S603 (our own interpreter)
            [
                *(sys.executable, "-I", "-S", "-c", _START),
                *(str(its.fileno()), os.fspath(path), msgspec.json.encode(limits).decode()),
                *(os.fspath(Path(entry).absolute()) for entry in (os.fspath(root), *sys.path) if entry),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[its.fileno()],
            env={name: os.environ[name] for name in _ENVIRONMENT if name in os.environ},
            cwd="/",
        )
    except BaseException:
        ours.close()
        raise
    finally:
        its.close()
    return process, ours
