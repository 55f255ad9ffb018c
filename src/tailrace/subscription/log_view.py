"""What subscriptions need of a log."""

from collections.abc import Mapping
from typing import Protocol

from tailrace.model.chunk import Chunk
from tailrace.model.number import Offset, SchemaId
from tailrace.model.table import TableName, TableSchema

__all__ = ["LogView"]


class LogView(Protocol):
    """The reading side of one source's log. Safe to call from many tasks of one event loop."""

    @property
    def head(self) -> Offset:
        """Return the offset of the newest durable change; 0 when there is none."""

    @property
    def horizon(self) -> Offset:
        """Return the offset of the oldest change still readable; `head` + 1 when there is none."""

    async def read(self, after: Offset) -> Chunk | None:
        """Return the chunk that holds the change following `after`, or None when there is none yet.

        The chunk is shared by all readers; it may begin before that change.

        Raises:
            BehindHorizonError: The change after `after` was removed by retention.
            BeyondHeadError: `after` lies beyond the head.
        """

    async def wait(self, after: Offset, timeout_s: float) -> bool:
        """Return True as soon as the head is beyond `after`, False when that took too long.

        Raises:
            LogClosedError: The log was closed meanwhile.
        """

    def latest_schema(self, table: TableName) -> tuple[SchemaId, TableSchema] | None:
        """Return the newest known version of a table's schema."""

    def schemas(self) -> Mapping[SchemaId, TableSchema]:
        """Return all known schema versions."""
