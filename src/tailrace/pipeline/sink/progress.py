"""What a sink keeps beside the data, in the same atomic step: how far it has come. Pure."""

from collections.abc import Iterable, Mapping

import msgspec
import pyarrow.compute as pc
from msgspec import structs

from tailrace.model.errors import SinkRefusedError
from tailrace.model.table import TableSchema
from tailrace.pipeline.errors import SinkMovedError, SinkTableGoneError
from tailrace.pipeline.sink.base import Batch, SinkProgress, SinkTraits, TableChanges, TableMark

__all__ = [
    "KeepsProgress",
    "after",
    "decode",
    "decode_columns",
    "encode",
    "encode_columns",
    "forgotten",
    "has",
    "has_batch",
    "highest",
    "moved",
    "place",
    "refuse_lost",
]


class KeepsProgress:
    """What all sinks say about how far they have come: what they know since they were opened, or have taken since."""

    _progress: SinkProgress | None = None

    @property
    def traits(self) -> SinkTraits:
        """Return that it can do no more than every sink."""
        return SinkTraits()

    def progress(self) -> SinkProgress | None:
        """Return how far the sink has come."""
        return self._progress

    def applied(self) -> int | None:
        """Return the number of the last batch that the sink has."""
        return None if self._progress is None else self._progress.number


def has(progress: SinkProgress | None, batch: Batch) -> bool:
    """Tell whether the sink has this batch already.

    Raises:
        SinkMovedError: It has a batch of that number that ends elsewhere, or a later one, but not all of these changes.
    """
    if progress is None or batch.number > progress.number:
        return False
    is_last = batch.number == progress.number
    held = {name: progress.offsets.get(name, -1) for name in batch.offsets}
    other = [one for one in batch.offsets.items() if one[1] > held[one[0]] or (is_last and one[1] != held[one[0]])]
    if other:
        name, offset = other[0]
        raise SinkMovedError(
            f"the sink has batch {progress.number} of pipeline {batch.pipeline!r} through offset "
            f"{progress.offsets.get(name, 0)} of source {name!r}; batch {batch.number} through {offset} is none of "
            "those it has: another worker writes into it. Let no two pipelines of one name have the same sink"
        )
    return True


def has_batch(held: TableMark | None, given: TableMark, known: TableMark | None) -> bool:
    """Tell whether a table whose last batch is `held` has the one that is given, which follows on the one `known`.

    Raises:
        SinkMovedError: The table has another one: what was given would be in it twice, or follow on a gap.
    """
    if held is not None and held.number == given.number and (None in {given.through, held.through} or held == given):
        return True
    if held != known or (held is not None and held.number > given.number):
        raise SinkMovedError("another worker has written into the table")
    return False


def after(progress: SinkProgress | None, batch: Batch) -> SinkProgress:
    """Return the progress of a sink that had `progress` and was given `batch`."""
    return moved(progress, batch.number, batch.offsets, {place(one.schema): highest(one) for one in batch.tables})


def moved(
    progress: SinkProgress | None, number: int, offsets: Mapping[str, int], highest_: Mapping[str, int]
) -> SinkProgress:
    """Return the progress of a sink that had `progress` and took a batch with these offsets, highest by table."""
    before = progress or SinkProgress(number, {})
    found = {name: max(offset, before.highest.get(name, 0)) for name, offset in highest_.items()}
    return SinkProgress(number, {**before.offsets, **offsets}, {**before.highest, **found}, before.since)


def highest(table: TableChanges) -> int:
    """Return the highest offset of the changes of a table; 0 where there are none."""
    return pc.max(table.changes["_offset"]).as_py() or 0


def refuse_lost(progress: SinkProgress | None, schemas: Iterable[TableSchema], there: Iterable[TableSchema]) -> None:
    """Check that no table has gone that the sink had changes of.

    Raises:
        SinkTableGoneError: One is gone.
    """
    found = {place(schema) for schema in there}
    for schema in schemas:
        if progress is not None and place(schema) in progress.highest and place(schema) not in found:
            raise SinkTableGoneError(schema.table.wire)


def forgotten(progress: SinkProgress, schemas: Iterable[TableSchema], there: Iterable[TableSchema]) -> SinkProgress:
    """Return the progress without those of these tables that are not there."""
    found = {place(schema) for schema in there}
    gone = {place(schema) for schema in schemas} - found
    highest_ = {name: offset for name, offset in progress.highest.items() if name not in gone}
    return structs.replace(progress, highest=highest_)


def place(schema: TableSchema) -> str:
    """Return the name of a table among those of all sources."""
    return f"{schema.table.source}.{schema.table.wire}"


def encode(progress: SinkProgress) -> bytes:
    """Return the progress as JSON."""
    return msgspec.json.encode(progress)


def decode(data: bytes | str) -> SinkProgress:
    """Read what `encode` wrote.

    Raises:
        SinkRefusedError: It is something else.
    """
    try:
        return msgspec.json.decode(data, type=SinkProgress)
    except msgspec.MsgspecError:
        raise SinkRefusedError("what the sink keeps about its batches is damaged: reset the pipeline") from None


def encode_columns(progress: SinkProgress) -> tuple[int, str, str]:
    """Return the progress as the columns `number`, `offsets` and `highest`: such sinks have no marks of tables."""
    offsets, highest_ = (msgspec.json.encode(one).decode() for one in (progress.offsets, progress.highest))
    return progress.number, offsets, highest_


def decode_columns(number: int, offsets: str, highest_: str) -> SinkProgress:
    """Read what `encode_columns` made.

    Raises:
        SinkRefusedError: It is something else.
    """
    return decode(f'{{"number":{number},"offsets":{offsets},"highest":{highest_}}}')
