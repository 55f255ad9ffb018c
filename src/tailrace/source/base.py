"""The seam between a database and the pump that moves its commits into the log."""

from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Protocol, TypeVar

import pyarrow as pa
from msgspec import Struct

from tailrace.model.commit import CommitId, Draft, Progress
from tailrace.model.key_interval import KeyInterval
from tailrace.model.number import Position, SchemaId
from tailrace.model.table import TableName, TableSchema
from tailrace.source.reader import Reader
from tailrace.source.result import ResultRows, RunLimits
from tailrace.sql.dialect import Dialect
from tailrace.sql.query import Catalog, Stored

__all__ = [
    "CAPTURE_ONLY",
    "Barrier",
    "DirectSource",
    "QuerySource",
    "Reader",
    "ResultRows",
    "RunLimits",
    "SchemaRegistry",
    "SnapshotRows",
    "Source",
    "TablePage",
    "TableSnapshot",
]

_T = TypeVar("_T")

CAPTURE_ONLY = "can only be captured: there are changes to be had, but no queries, snapshots, ranges, rows or SQL"
"""Why a source without a `QuerySource` refuses, in `SourceAbilityError`."""


class SchemaRegistry(Protocol):
    """Where a source announces table schemas. The log is one."""

    async def put_schemas(self, history: Sequence[TableSchema]) -> list[tuple[SchemaId, TableSchema]]:
        """Keep versions of one table's schema, oldest first, and return each with its number. Durable on return.

        The registry counts the versions, whatever the source calls them: those that it has already, as its newest in
        the same order, keep their numbers, and the others follow. A source that knows only how the table is now
        announces that alone.
        """

    def latest_schema(self, table: TableName) -> tuple[SchemaId, TableSchema] | None:
        """Return the newest version of a table's schema that is kept, with its number; None where there is none."""


class Source(Protocol):
    """One upstream database.

    Life: `open` once, `commits` once at a time, `confirm` as often as the log has synced, `close` once. All methods are
    called from one task group on one event loop; `confirm` may run while `commits` waits.
    """

    name: str

    @property
    def direct(self) -> "DirectSource | None":
        """Return what hands commits over in a thread of its own; None where they come by `commits` alone."""

    async def open(self, registry: SchemaRegistry) -> None:
        """Connect and make capture ready: after this, every commit to the database will be seen. Safe to repeat.

        Raises:
            SourceStateError: The database does not let us capture; the message says what to do.
            SourceUnavailableError: It cannot be reached now; try again.
        """

    def commits(self, after: Position | None) -> AsyncGenerator[Sequence[Draft] | Progress, None]:
        """Yield committed transactions in commit order, those after the position `after`, as they come, for ever.

        Each group is what was there when the source looked; it is never empty. None starts with what comes after the
        source was first opened. A position stays valid until it is confirmed. Closing the generator ends the stream.

        A transaction that is too large to be held at once is yielded in parts; see `Draft`. The log has it when it has
        the last one: a stream that begins again begins it again.

        Where the database moves on without a commit that is captured, `Progress` between two groups says how far: then
        barriers are reached, and what lies before it may be confirmed, although the log has nothing new.

        Raises:
            SourceUnavailableError: The connection broke; open again and resume after the last position in the log.
            SourceStateError: The position is lost or the database changed so that capture cannot go on.
        """

    async def confirm(self, position: Position) -> None:
        """Tell the database that the log has everything up to and including `position`, so it may forget it.

        The pump appends nothing before this returns: a source that shares its disk with the log may take a moment.
        """

    async def close(self) -> None:
        """Disconnect. Capture stays set up: commits made meanwhile wait in the database."""

    def tables(self) -> Sequence[TableSchema]:
        """Return the captured tables as they are now."""


class DirectSource(Protocol):
    """A source that reads in a thread and can hand over what it reads right there, without the event loop between.

    That saves two changes of thread for each commit. It stands in for `Source.commits` and `Source.confirm`.
    """

    async def hand_over(self, after: Position | None, take: Callable[[Sequence[Draft] | Progress], None]) -> None:
        """Call `take` with what `Source.commits` would yield, in the reading thread, until cancelled.

        `take` blocks until it wants more. What it raises ends the reading, and is raised here.

        Raises:
            SourceUnavailableError, SourceStateError: As `Source.commits`.
        """

    def confirm_directly(self, position: Position) -> None:
        """Do what `Source.confirm` does, in the reading thread, inside `take`; never wait."""


class Barrier(Struct, frozen=True):
    """What a database had committed at one moment. `catalog` names the version of its schema then."""

    position: Position | None
    """Once the log is here, it has everything that was committed; None where it has that already."""

    catalog: str


class SnapshotRows(Struct, frozen=True):
    """Some rows: keys and images in their natural JSON form, lists of one length."""

    keys: list[bytes]
    images: list[bytes]


class TableSnapshot(Protocol):
    """All rows of one table as one transaction saw them, handed out bit by bit. For one task."""

    schema: TableSchema

    @property
    def barrier(self) -> Barrier:
        """Return what was committed when the rows were read."""

    def contains(self, commit: CommitId) -> bool:
        """Tell whether a commit of the log is in the rows already."""

    def complete(self, commit: CommitId | None) -> bool:
        """Tell whether the rows have nothing of the commits after this one, the last in the log that they contain.

        None is for a log of which they contain no commit. False where a source makes one commit of several transactions
        and the rows have some of them.
        """

    async def rows(self) -> SnapshotRows | None:
        """Return the next rows, a bounded number; None when there are no more."""

    def close(self) -> None:
        """Let go of the rows. Safe to repeat."""


class TablePage(Protocol):
    """The rows of an interval of keys as one transaction saw them, in order of keys, as far as one page goes."""

    schema: TableSchema
    last: str | None
    """Key of the last row, in its natural JSON form; None where there is no row."""

    end: bool
    """Whether the interval ends here: else more rows may follow the last key."""

    @property
    def barrier(self) -> Barrier:
        """Return what was committed when the rows were read."""

    def contains(self, commit: CommitId) -> bool:
        """Tell whether a commit of the log is in the rows already."""

    def complete(self, commit: CommitId | None) -> bool:
        """Tell whether the rows have nothing of the commits after this one, the last in the log that they contain.

        None is for a log of which they contain no commit. False where a source makes one commit of several transactions
        and the rows have some of them.
        """

    def rows(self) -> SnapshotRows:
        """Return the rows. Takes long for many: not for an event loop."""

    def columns(self) -> pa.RecordBatch | None:
        """Return the rows as one Arrow column for each column of the schema, a hidden row number first, as `rowid`.

        None where a value is not of its column's kind, or a kind has no Arrow type of its own. Not for an event loop.
        """


class QuerySource(Protocol):
    """The reading side of an upstream database. Safe to call from many tasks of one event loop.

    `catalog` texts of different versions of the schema differ, also when a schema is changed and changed back.
    `dialect` is what its catalogs, queries and arguments are for.
    """

    @property
    def dialect(self) -> Dialect:
        """Return the SQL of the database."""

    async def newest(self, timeout_s: float) -> Barrier:
        """Return what is committed now, looked up after this call began. Waits until capture fits the schema.

        Raises:
            SourceUnavailableError: The database cannot be reached, or capture did not fit its schema in time.
        """

    def reached(self, barrier: Barrier, position: Position | None) -> bool:
        """Tell whether a log that ends at `position` has everything that the barrier stands for."""

    async def consult(self, use: Callable[[Catalog], _T]) -> tuple[_T, str]:
        """Return `use(catalog)` of the newest catalog, computed in a thread, and the name of the schema's version.

        Raises:
            SourceUnavailableError: The database cannot be reached.
        """

    async def run(self, sql: str, arguments: Sequence[Stored], limits: RunLimits) -> ResultRows:
        """Run a query that only reads.

        Raises:
            InvalidRequestError: The database rejected it, or it would do something else than read tables.
            ResultTooLargeError: The result exceeds a limit.
            QueryTimeoutError: It took too long, waiting for its turn included.
            SourceUnavailableError: The database cannot be reached.
        """

    async def snapshot(self, table: TableName, timeout_s: float) -> TableSnapshot:
        """Return all rows of a table as they are now. Waits up to `timeout_s` until capture fits the schema.

        Raises:
            UnknownTableError: There is no such table any more.
            SourceUnavailableError: The database cannot be reached, or capture did not fit its schema in time.
        """

    async def count(self, table: TableName) -> int:
        """Return how many rows a table has now.

        Raises:
            UnknownTableError: There is no such table any more.
            SourceUnavailableError: The database cannot be reached.
        """

    async def last_key(self, table: TableName) -> str | None:
        """Return the greatest key that a table has now, in the order of `cut` and `page`; None where it has no rows.

        Raises:
            UnknownTableError: There is no such table any more.
            SourceUnavailableError: The database cannot be reached.
        """

    async def cut(self, table: TableName, within: KeyInterval, *, rows: int, count: int) -> list[str]:
        """Return keys of rows, rising, that cut an interval into runs of this many rows; at most `count`.

        Each is the last key of a run. After the last of fewer than `count` there are fewer than `rows` rows. Where keys
        that are null in part are not unique, a run has all rows of its last key, and so more of them.

        Raises:
            InvalidValueError: A bound is no key of the table.
            UnknownTableError: There is no such table any more.
            SourceUnavailableError: The database cannot be reached.
        """

    async def page(self, table: TableName, within: KeyInterval, *, rows_max: int, timeout_s: float) -> TablePage:
        """Return the first rows of an interval as they are now. Waits until capture fits the schema.

        Where keys that are null in part are not unique, it has all rows of its last key, and so more than `rows_max`.

        Raises:
            InvalidValueError: A bound is no key of the table.
            ResultTooLargeError: More rows than a page holds have the same key.
            UnknownTableError: There is no such table any more.
            SourceUnavailableError: The database cannot be reached, or capture did not fit its schema in time.
        """

    async def close(self) -> None:
        """Disconnect; runs under way are ended."""
