"""All rows of one PostgreSQL table as one transaction sees them.

They are copied to a temporary file as fast as the server gives them, and handed out from there: an open transaction
keeps the server from removing old versions of rows, and a subscriber may be slow.
"""
# ruff: noqa: S608 (identifiers are quoted)

import asyncio
import contextlib
import threading

from tailrace.model.commit import CommitId
from tailrace.model.errors import SourceUnavailableError
from tailrace.model.table import TableName, TableSchema
from tailrace.source.base import Barrier, SnapshotRows
from tailrace.source.postgres.commit_watch import Look
from tailrace.source.postgres.read_connection import ReadConnection, cells_of
from tailrace.source.row_spool import RowSpool

__all__ = ["PostgresSnapshot", "copy_table"]

_CHECK_ROWS = 512
"""Rows between two looks whether they are still wanted."""


class PostgresSnapshot:
    """The rows of a table in a temporary file; satisfies `tailrace.source.base.TableSnapshot`."""

    def __init__(self, found: Look, schema: TableSchema, spool: RowSpool) -> None:
        self.schema = schema
        self._look = found
        self._spool = spool

    @property
    def barrier(self) -> Barrier:
        """Return what was committed when the rows were read."""
        return self._look.barrier

    def contains(self, commit: CommitId) -> bool:
        """Tell whether a commit is in the rows already."""
        return self._look.contains(commit)

    def complete(self, commit: CommitId | None) -> bool:
        """Return that the rows have nothing of later commits: a transaction that does is not read from."""
        return True

    async def rows(self) -> SnapshotRows | None:
        """Return the next rows; None when there are no more."""
        return await asyncio.to_thread(self._spool.read)

    def close(self) -> None:
        """Let go of the rows."""
        self._spool.close()


def copy_table(
    connection: ReadConnection,
    table: TableName,
    deadline_s: float,
    stopping: threading.Event,
    cancelled: threading.Event,
) -> PostgresSnapshot:
    """Copy the rows of a table, for a thread; `cancelled` ends it early. See `QuerySource.snapshot`."""
    spool = RowSpool()
    try:
        with connection.reading(table, deadline_s, stopping) as (found, plan):
            count, key, image = plan.shape.count, plan.shape.key, plan.shape.image
            where = f" WHERE {plan.where}" if plan.where else ""
            query = f"SELECT {', '.join(plan.columns)} FROM {plan.path}{where}"
            with contextlib.closing(connection.copied(query)) as copied:
                for number, line in enumerate(copied):
                    if number % _CHECK_ROWS == 0 and (cancelled.is_set() or stopping.is_set()):
                        raise SourceUnavailableError("the rows are no longer requested")
                    cells = cells_of(line, count)
                    spool.add(key(cells), image(cells))
        spool.rewind()
    except BaseException as error:
        spool.close()
        if isinstance(error, OSError):
            raise SourceUnavailableError(f"the rows of {table.wire} cannot be copied now: {error}") from error
        raise
    return PostgresSnapshot(found, plan.schema, spool)
