"""SQL statements of clients in an SQLite database, in a process of their own."""

import asyncio
import os
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from tailrace.metrics import Metrics
from tailrace.model.errors import QueryTimeoutError, SourceUnavailableError
from tailrace.source.reader import Reader
from tailrace.source.result import RunLimits, StatementResult
from tailrace.source.sqlite.process_message import (
    AskCommit,
    ProcessFailure,
    StatementRequest,
    Written,
    answer_bytes_max,
)
from tailrace.source.sqlite.process_pool import ProcessPool
from tailrace.sql.query import Stored

__all__ = ["SqliteStatementRunner"]

_WAITING_MAX = 64
"""Statements that may wait for their turn."""


class SqliteStatementRunner:
    """Satisfies `tailrace.source.statement.StatementRunner`. `reader` is who captures the database; None for nobody.

    One statement runs at a time. Its process asks before it commits: until the server has agreed, ending the process
    undoes the statement for certain; afterwards the commit is waited for.
    """

    def __init__(self, path: Path, reader: Reader | None, metrics: Metrics | None = None) -> None:
        self._reader = None if reader is None else msgspec.structs.replace(reader, pid=os.getpid())
        self._processes = ProcessPool(path, metrics)
        self._turn = asyncio.Lock()
        self._running: set[asyncio.Task[StatementResult]] = set()

    async def execute(self, sql: str, arguments: Sequence[Stored], limits: RunLimits) -> StatementResult:
        """Run one statement; see `StatementRunner.execute`. It is finished also if nobody waits for it any more."""
        if len(self._running) >= _WAITING_MAX:
            raise SourceUnavailableError("too many statements are waiting for the database: try again later")
        task = asyncio.create_task(self._execute(sql, tuple(arguments), limits))
        self._running.add(task)
        task.add_done_callback(self._finish)
        return await asyncio.shield(task)

    async def close(self) -> None:
        """End what runs, unless it commits, and disconnect."""
        await self._processes.close()
        await asyncio.gather(*self._running, return_exceptions=True)

    async def _execute(self, sql: str, arguments: tuple[Stored, ...], limits: RunLimits) -> StatementResult:
        deadline_s = time.monotonic() + limits.timeout_s
        late = f"the statement takes longer than {limits.timeout_s:g} s: ask for less"
        try:
            async with asyncio.timeout(limits.timeout_s):
                await self._turn.acquire()
        except TimeoutError:
            raise QueryTimeoutError("other statements take too long: try again later") from None
        try:
            async with self._processes.lease() as process:
                left_s = deadline_s - time.monotonic()
                request = StatementRequest(sql, arguments, limits, left_s, self._reader)
                bytes_max = answer_bytes_max(limits)
                answer = await process.ask(request, left_s, bytes_max, late)
                if isinstance(answer, AskCommit):
                    answer = await process.commit(bytes_max)
        finally:
            self._turn.release()
        match answer:
            case Written() as written:
                return written.result()
            case ProcessFailure() as failure:
                raise failure.error()
            case other:
                raise AssertionError(f"a statement was answered with {type(other).__name__}")

    def _finish(self, task: asyncio.Task[StatementResult]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # whoever waited has it
