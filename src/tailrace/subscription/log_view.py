"""What subscriptions need of a log."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar

from tailrace.model.chunk import Chunk
from tailrace.model.number import Index, Offset, SchemaId
from tailrace.model.table import TableName, TableSchema
from tailrace.model.wanted import Wanted

__all__ = ["CommitReader", "LogView", "LogWindow"]

_T = TypeVar("_T")


class LogWindow(Protocol):
    """What can be read of one source's log now."""

    @property
    def head(self) -> Offset:
        """Return the offset of the newest durable change; 0 when there is none."""

    @property
    def horizon(self) -> Offset:
        """Return the offset of the oldest change still readable; `head` + 1 when there is none."""

    @property
    def last_index(self) -> Index:
        """Return the index of the newest durable commit; 0 when there is none."""

    @property
    def commits(self) -> "CommitReader":
        """Return what finds commits."""

    async def read(self, after: Offset) -> Chunk | None:
        """Return the chunk that holds the change following `after`, or None when there is none yet.

        The chunk is shared by all readers; it may begin before that change.

        Raises:
            BehindHorizonError: The change after `after` was removed by retention.
            BeyondHeadError: `after` lies beyond the head.
        """

    def schemas(self) -> Mapping[SchemaId, TableSchema]:
        """Return all known schema versions."""


class LogView(LogWindow, Protocol):
    """The reading side of one source's log, as it grows. Safe to call from many tasks of one event loop."""

    def recent(self, after: Offset) -> Chunk | None:
        """Return the chunk that holds the change after `after`, where that is in memory, as the newest changes are."""

    def listen(self, grown: Callable[[], None]) -> Callable[[], None]:
        """Have `grown` called on the event loop each time the head has moved, and when the log is closed.

        It is called before any task runs that waits for the change, so it should be short. Returns what ends that.
        """

    async def read(self, after: Offset, wanted: Callable[[], Wanted | None] | None = None) -> Chunk | None:
        """Do what `LogWindow.read` does. Given what is `wanted`, the chunk may hold that alone: see `PickedChunk`."""

    async def wait(self, after: Offset, timeout_s: float) -> bool:
        """Return True as soon as the head is beyond `after`, False when that took too long.

        Raises:
            LogClosedError: The log was closed meanwhile.
        """

    async def skip(self, after: Offset, wanted: Callable[[], Wanted | None]) -> Offset:
        """Return an offset, `after` or a later one, up to which no change is wanted: what lies before need not be read.

        `wanted` is asked only where something is known of the changes that follow; None wants all of them.

        Raises:
            BehindHorizonError: The change after `after` was removed by retention.
            BeyondHeadError: `after` lies beyond the head.
        """

    async def read_run(self, after: Offset, through: Offset, take: Callable[[Sequence[Chunk]], _T]) -> _T:
        """Read the changes that follow `after`, many at once, and return what `take` makes of them in a worker thread.

        `take` is given consecutive chunks, at least one. The first holds the change after `after` and may begin before
        it; the last may go beyond `through`, which is larger than `after`. What is read so is kept for nobody else.

        Raises:
            BehindHorizonError: The change after `after` was removed by retention.
            BeyondHeadError: `through` lies beyond the head.
        """

    async def lend(
        self, after: Offset, through: Offset, bytes_max: int, take: Callable[[Sequence[Chunk]], _T]
    ) -> list[_T]:
        """Return what `take` makes, in a worker thread, of the chunks of each of some blocks that follow `after`.

        The first chunk holds the change after `after` and may begin before it. The chunks are lent: they may show
        memory that is used again, and nothing of them may be kept. They end at `through`, which is larger than `after`,
        or before that with about `bytes_max` bytes; there is one at least.

        Raises:
            BehindHorizonError: The change after `after` was removed by retention.
            BeyondHeadError: `through` lies beyond the head.
        """

    def run_behind(self, after: Offset, bytes_max: int) -> Offset | None:
        """Return the offset up to which `lend` will go from `after` on, as far as that is known without reading.

        It is a hint, for those who want to begin with what follows meanwhile; None where there is none.
        """

    def latest_schema(self, table: TableName) -> tuple[SchemaId, TableSchema] | None:
        """Return the newest known version of a table's schema."""


class CommitReader(Protocol):
    """Finds the commits of a log."""

    async def first_index(self) -> Index:
        """Return the index of the oldest commit of which all changes can be read; `last_index` + 1 when none."""

    async def offset_before(self, index: Index) -> Offset:
        """Return the offset after which a commit begins, the one that comes next included.

        Raises:
            BehindHorizonError: Changes of it were removed by retention.
            BeyondHeadError: Commits before it are not in the log yet.
        """

    async def index_after_hlc(self, hlc: int) -> Index | None:
        """Return the index of the first commit with a larger timestamp, the one that comes next included.

        None where that may have been a commit that retention has removed.
        """

    async def size_after(self, offset: Offset) -> int:
        """Return about how many bytes of the log follow a change."""
