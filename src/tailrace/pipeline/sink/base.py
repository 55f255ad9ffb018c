"""The seam to sinks: where a pipeline puts changes, one batch after the other."""

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
from msgspec import Struct

from tailrace.meta.pipeline import Mode
from tailrace.model.table import TableSchema
from tailrace.pipeline.sink.upkeep import TableLayout, Upkeep

if TYPE_CHECKING:
    from tailrace.pipeline.sink.spread import TaskWriting

__all__ = ["Batch", "ChangeType", "Mode", "Sink", "SinkProgress", "SinkTraits", "TableChanges", "TableMark"]


class ChangeType(StrEnum):
    """Values of `_change_type`: those that Spark uses for changes, `read` for a row of a snapshot, and two for tables.

    After `truncate` a table has no rows, and after `drop` it is gone with its rows.
    """

    INSERT = "insert"
    UPDATE_PREIMAGE = "update_preimage"
    UPDATE_POSTIMAGE = "update_postimage"
    DELETE = "delete"
    READ = "read"
    TRUNCATE = "truncate"
    DROP = "drop"


class TableChanges(Struct, frozen=True):
    """Changes of one table in one batch, typed, in order of their offsets.

    `changes` has the columns `_change_type` (string), `_offset`, `_commit_version` (int64: the commit index),
    `_commit_timestamp` (timestamp[us, UTC]), then the columns of `schema` in its order; `schema` is the newest version
    that the batch holds. An update is two rows, the row before and the row after; a delete carries the row before it.
    A truncation, or the end of a table, is one row whose columns, those of the key among them, are all null.
    Where the source did not send all cells of a row, the column `_tailrace_unchanged` (`tailrace.pipeline.unchanged`)
    names the columns that it lacks: an update leaves those alone. Rows of a snapshot have the offset at which the
    snapshot belongs. A table whose identity is a row number has that as its key, in the hidden column `rowid`.
    """

    schema: TableSchema
    changes: pa.Table
    fresh: bool = False
    """Whether these are rows of a snapshot that the sink cannot have: of no key is there anything in it yet."""

    images: bool = False
    """Whether the rows are images in place of columns, of exactly the version of `schema`: then `changes` has the
    columns of `tailrace.pipeline.image_rows`. Only sinks of messages are given such, where nothing is transformed.
    """


class Batch(Struct, frozen=True):
    """What a sink is given at once. A batch that is given again has the same `number` and holds the same changes."""

    pipeline: str
    """Name of the pipeline: numbers of different pipelines do not mix in one sink."""

    number: int
    """From 0, rising; by more than one where the numbers between may be those of batches that only some tables have."""

    offsets: dict[str, int]
    """Last offset of each source that is in the sink after this batch; none where it only repairs what is there."""

    tables: Sequence[TableChanges]
    """None where all that a source had up to those offsets was of other tables."""

    anew: bool = False
    """Whether the sink is to forget how far its tables were: the log of the source may have begun again."""


class SinkProgress(Struct, frozen=True):
    """The last batch that a sink has of a pipeline."""

    number: int
    offsets: dict[str, int]
    """Last offset of each source that is in the sink."""

    highest: dict[str, int] = {}
    """Highest offset of the changes of each table. Changes behind it are none that the sink has already."""

    since: int = 0
    """First batch whose offsets count, where tables have marks of their own: those before are of another log."""


class TableMark(Struct, frozen=True):
    """The last batch that one table has, where tables take a batch one after the other."""

    number: int
    through: int | None = None
    """Last offset of the table's source that the batch brought it to; None where that is not known."""


class SinkTraits(Struct, frozen=True):
    """What a sink can do beyond `Sink`: each ability itself, or None where the sink does not have it.

    All of them are called by the sink's one thread, and raise what `Sink.open` raises.
    """

    forget: Callable[[Sequence[TableSchema]], None] | None = None
    """Forget those of these tables that are gone; the next `open` makes them again. The sink need not be open."""

    newest: Callable[[Sequence[TableSchema]], int | None] | None = None
    """Return the greatest number of a batch that one of these tables has; None where none has any. Of a sink whose
    tables take a batch one after the other: after a failure some may have one that others lack.
    """

    ahead: Callable[[Sequence[TableSchema]], dict[str, int]] | None = None
    """Return, by name, through which offset those of these tables have all changes that have a batch which the sink
    lacks as a whole. What is given to the sink next may be cut otherwise: it must not hold those changes again.
    """

    spread: "TaskWriting | None" = None
    """Have tasks write the batch."""

    use_spark: Callable[[Callable[[], Any]], None] | None = None
    """Take the session of Spark that the sink works through from there, before it is opened."""

    upkeep: Upkeep | None = None
    """Maintain those of these tables that are there. The sink need not be open."""

    lay_out: Callable[[TableLayout], None] | None = None
    """Take how tables are to be made, before the sink is opened."""

    retry_letters: Callable[[], int] | None = None
    """Resend dead letters that are marked for retry; return how many have arrived."""


class Sink(Protocol):
    """One sink of one pipeline. For one thread.

    Order: batches are given in rising order, each after the one before it has returned. Inside a batch the changes of
    one key are in order; the last one wins. Duplicates: after a failure the same batch is given again, whether or not
    it had been applied; a sink keeps the number of the last batch in the same atomic step as the data, and a batch that
    it already has changes nothing. Durability: when `apply` returns, the batch survives a crash of the sink's system.
    A sink that cannot keep these promises says in its own docstring which and what a reader has to do.
    """

    @property
    def traits(self) -> SinkTraits:
        """Return what else it can do."""

    def open(self, schemas: Sequence[TableSchema]) -> None:
        """Connect, and make what is missing of the targets of these tables.

        Raises:
            SinkUnavailableError: The target cannot be reached now: worth another try.
            SinkTableGoneError: A table is gone that the sink had changes of, the first of several; see
                `SinkTraits.forget`.
            SinkRefusedError: The target will not take this, e.g. for its credentials: nothing changes by itself.
        """

    def applied(self) -> int | None:
        """Return the number of the last batch that the sink has; None for none."""

    def progress(self) -> SinkProgress | None:
        """Return how far the sink has come; None where it has no batch, or keeps none."""

    def apply(self, batch: Batch) -> None:
        """Apply one batch, wholly or not at all.

        Raises:
            SinkUnavailableError: The target cannot be reached now. It may have taken the batch all the same.
            SinkRefusedError: The target refuses a row or a column; the message names its table and key. Or the sink has
                a batch of this number, but with other changes.
        """

    def rows(self, schema: TableSchema) -> Any:
        """Return the rows of a table as the sink has them now, as Arrow record batches, for `verify`."""

    def close(self) -> None:
        """Disconnect. Safe to repeat."""
