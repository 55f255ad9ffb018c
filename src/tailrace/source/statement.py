"""The seam of SQL statements that clients bring: they may write, and what they write is captured."""

from collections.abc import Sequence
from typing import Protocol

from tailrace.source.result import RunLimits, StatementResult
from tailrace.sql.query import Stored

__all__ = ["StatementResult", "StatementRunner"]


class StatementRunner(Protocol):
    """Runs statements in a source, each in a transaction of its own. Safe to call from many tasks of one event loop."""

    async def execute(self, sql: str, arguments: Sequence[Stored], limits: RunLimits) -> StatementResult:
        """Run one statement, whole or not at all. On disk when this returns; the log has its changes soon after.

        Raises:
            InvalidRequestError: The database rejected it, it is not one statement, or it is none that clients
                may run: those that reach beyond the tables of the database, or touch what capture keeps there.
            ResultTooLargeError: The result exceeds a limit.
            QueryTimeoutError: It took too long, waiting for its turn included.
            SourceUnavailableError: The database is locked or cannot be reached.
        """

    async def close(self) -> None:
        """End what runs, and disconnect."""
