"""SQL statements of clients in an SQLite database, in a thread of their own."""

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

from tailrace.model.errors import SourceUnavailableError
from tailrace.source.result import RunLimits, StatementResult, Stored
from tailrace.source.sqlite.client_statement import open_writing, run_statement
from tailrace.source.sqlite.connection_thread import ConnectionThread
from tailrace.source.sqlite.options import Reader

__all__ = ["SqliteStatementRunner"]

_WAITING_MAX = 64
"""Statements that may wait for their turn."""


class SqliteStatementRunner:
    """Satisfies `tailrace.source.statement.StatementRunner`. `reader` is who captures the database; None for nobody."""

    def __init__(self, path: Path, reader: Reader | None) -> None:
        self._reader = reader
        self._thread = ConnectionThread(lambda: open_writing(path), "sqlite-statement")
        self._waiting = 0
        self._stopping = False

    async def execute(self, sql: str, arguments: Sequence[Stored], limits: RunLimits) -> StatementResult:
        """Run one statement; see `StatementRunner.execute`."""
        if self._waiting >= _WAITING_MAX:
            raise SourceUnavailableError("too many statements wait for the database: try again later")
        deadline_s = time.monotonic() + limits.timeout_s
        self._waiting += 1
        try:
            running = self._thread.submit(
                lambda connection: run_statement(
                    connection, self._reader, sql, arguments, limits, deadline_s, lambda: self._stopping
                )
            )
            return await asyncio.shield(running)
        finally:
            self._waiting -= 1

    async def close(self) -> None:
        """End what runs, and disconnect."""
        self._stopping = True  # an interrupt that comes between two statements ends nothing
        self._thread.interrupt()
        await self._thread.close()
