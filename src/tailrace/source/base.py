"""The seam between a database and the pump that moves its commits into the log."""

from collections.abc import AsyncGenerator, Sequence
from typing import Protocol

from tailrace.model.commit import Draft
from tailrace.model.number import Position, SchemaId
from tailrace.model.table import TableName, TableSchema

__all__ = ["SchemaRegistry", "Source"]


class SchemaRegistry(Protocol):
    """Where a source announces table schemas. The log is one."""

    async def put_schema(self, schema: TableSchema) -> SchemaId:
        """Keep a schema version and return its number; the same version gives the same number. Durable on return."""

    def latest_schema(self, table: TableName) -> tuple[SchemaId, TableSchema] | None:
        """Return the newest known version of a table's schema."""


class Source(Protocol):
    """One upstream database.

    Life: `open` once, `commits` once at a time, `confirm` as often as the log has synced, `close` once. All methods are
    called from one task group on one event loop; `confirm` may run while `commits` waits.
    """

    name: str

    async def open(self, registry: SchemaRegistry) -> None:
        """Connect and make capture ready: after this, every commit to the database will be seen. Safe to repeat.

        Raises:
            SourceStateError: The database does not let us capture; the message says what to do.
            SourceUnavailableError: It cannot be reached now; try again.
        """

    def commits(self, after: Position | None) -> AsyncGenerator[Sequence[Draft], None]:
        """Yield committed transactions in commit order, those after the position `after`, as they come, for ever.

        Each group is what was there when the source looked; it is never empty. None starts with what comes after the
        source was first opened. A position stays valid until it is confirmed. Closing the generator ends the stream.

        Raises:
            SourceUnavailableError: The connection broke; open again and resume after the last position in the log.
            SourceStateError: The position is lost or the database changed so that capture cannot go on.
        """

    async def confirm(self, position: Position) -> None:
        """Tell the database that the log has everything up to and including `position`, so it may forget it."""

    async def close(self) -> None:
        """Disconnect. Capture stays set up: commits made meanwhile wait in the database."""

    def tables(self) -> Sequence[TableSchema]:
        """Return the captured tables as they are now."""
