"""Reading a log in bulk: where to begin, intervals that end where commits end, and their changes as Arrow batches."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.log.pick import Pick
from tailrace.model.chunk import ENVELOPE, Chunk
from tailrace.model.errors import BehindHorizonError, BeyondHeadError, UnknownTableError
from tailrace.model.number import Index, Offset, SchemaId
from tailrace.model.start import CursorStart, Earliest
from tailrace.model.table import TableName
from tailrace.model.wanted import Conditions, Wanted
from tailrace.subscription.log_view import LogView, LogWindow
from tailrace.subscription.place import find_place
from tailrace.subscription.table import readings

__all__ = [
    "BULK_COLUMNS",
    "BULK_SCHEMA",
    "bulk_batch",
    "bulk_runs",
    "check_window",
    "find_cuts",
    "find_start",
    "narrowed",
    "schemas_of",
    "sought",
]

_T = TypeVar("_T")

BULK_COLUMNS = ENVELOPE.names[: ENVELOPE.get_field_index("position")]
_BULK_PLACES = list(range(len(BULK_COLUMNS)))  # quicker to select by than names
BULK_SCHEMA: pa.Schema = pa.schema([ENVELOPE.field(name) for name in BULK_COLUMNS])
"""Columns of a change that is read in bulk: those of the log without the marks that the log keeps for itself."""


def schemas_of(
    log: LogWindow, source: str, names: Collection[str], sees: Callable[[TableName], bool] | None = None
) -> frozenset[SchemaId] | None:
    """Return all versions of the tables that have these names on the wires; None, which means all, for no names.

    Tables that `sees` is false for are not there.

    Raises:
        UnknownTableError: There is no such table.
    """
    if not names:
        return None
    known = {number: schema for number, schema in log.schemas().items() if sees is None or sees(schema.table)}
    chosen: set[SchemaId] = set()
    for name in names:
        for table in readings(source, name):
            versions = {number for number, schema in known.items() if schema.table == table}
            if versions:
                chosen |= versions
                break
        else:
            raise UnknownTableError(source, name)
    return frozenset(chosen)


async def find_start(start: CursorStart, log: LogWindow) -> Offset:
    """Return the offset after which a reader begins. The earliest is the first commit that is wholly there.

    Raises:
        BeyondHeadError: It lies beyond the newest change.
    """
    if not isinstance(start, Earliest):
        return await find_place(start, log)
    while True:
        try:
            return await log.commits.offset_before(await log.commits.first_index())
        except BehindHorizonError:
            continue  # retention has just removed it


async def find_cuts(
    log: LogWindow,
    after: Offset,
    through: Offset,
    *,
    changes_max: int,
    bytes_max: int | None = None,
    count_max: int,
) -> list[Offset]:
    """Return offsets at which commits end, rising, that cut what follows `after` into intervals.

    None lies beyond `through`. An interval has at most `changes_max` changes, and about `bytes_max` bytes of the log;
    only one that is a single commit may have more. There are at most `count_max`: more follow the last one.

    Raises:
        BehindHorizonError: The change after `after` was removed by retention.
        BeyondHeadError: `after` or `through` is larger than the head.
    """
    check_window(log, after, through)
    cuts: list[Offset] = []
    place = after
    while place < through and len(cuts) < count_max:
        wanted = Offset(min(place + changes_max, through))
        if bytes_max is not None:
            wanted = await _within_bytes(log, place, wanted, bytes_max)
        cut = await _border(log, wanted, place)
        if cut > through:
            break
        cuts.append(cut)
        place = cut
    return cuts


def check_window(log: LogWindow, after: Offset, through: Offset) -> None:
    """Refuse an interval that the log does not have.

    Raises:
        BehindHorizonError: The change after `after` was removed by retention.
        BeyondHeadError: `after` or `through` is larger than the head.
    """
    if max(after, through) > log.head:
        raise BeyondHeadError(requested=max(after, through), head=log.head)
    if after + 1 < log.horizon:
        raise BehindHorizonError(requested=after + 1, horizon=log.horizon)


async def bulk_runs(
    log: LogView,
    after: Offset,
    through: Offset,
    schemas: frozenset[SchemaId] | None,
    take: Callable[[Sequence[pa.RecordBatch]], _T],
    conditions: Conditions | None = None,
) -> AsyncGenerator[tuple[Offset, _T], None]:
    """Yield what `take` makes of the changes of an interval, many at once, with the offset up to which they go.

    `take` runs in a worker thread; it is given batches in order, which may be empty where no changes are wanted. The
    next changes are read while the caller works on what it has; close the generator where it is left early. Changes
    that do not meet the `conditions` are left out as far as that shows without a look at their images.

    Raises:
        BehindHorizonError: Retention has removed a change before it was read.
        BeyondHeadError: `after` or `through` is larger than the head.
    """
    check_window(log, after, through)
    wanted = narrowed(log, schemas)
    skipping = sought(log, wanted, conditions)
    pick = None if conditions is None or skipping is None else Pick(skipping)

    async def run_after(place: Offset) -> tuple[Offset, _T]:
        if skipping is not None:
            place = min(await log.skip(place, lambda: skipping), through)
            if place == through:
                return place, await asyncio.to_thread(take, ())

        def taken(chunks: Sequence[Chunk]) -> tuple[Offset, _T]:
            last = min(chunks[-1].last, through)
            return last, take([bulk_batch(chunk, place, last, wanted, pick) for chunk in chunks])

        return await log.read_run(place, through, taken)

    place = after
    ahead = asyncio.create_task(run_after(place)) if place < through else None
    try:
        while ahead is not None:
            place, made = await ahead
            ahead = asyncio.create_task(run_after(place)) if place < through else None
            yield place, made
    finally:
        if ahead is not None and not ahead.cancel():
            ahead.exception()  # nobody asks for it any more


def narrowed(log: LogWindow, schemas: frozenset[SchemaId] | None) -> frozenset[SchemaId] | None:
    """Return which schema versions to look for; None, which means all, where these are all: nothing need be compared.

    What is in the log refers to no others than those which the log knows.
    """
    return None if schemas is not None and schemas >= log.schemas().keys() else schemas


def sought(log: LogWindow, schemas: frozenset[SchemaId] | None, conditions: Conditions | None = None) -> Wanted | None:
    """Return what tells blocks without a change of these schema versions, and such; None where all are wanted."""
    if schemas is None and conditions is None:
        return None
    known = log.schemas()
    chosen = {number: schema for number, schema in known.items() if schemas is None or number in schemas}
    return (conditions or Conditions()).wanted(chosen, len(known))


def bulk_batch(
    chunk: Chunk,
    after: Offset,
    through: Offset,
    schemas: Collection[SchemaId] | None = None,
    pick: Pick | None = None,
) -> pa.RecordBatch:
    """Return the changes of a chunk after one offset up to another, those of some schema versions alone if wanted.

    Of these, `pick` says which; nothing is copied where all are wanted.
    """
    begin = max(0, after + 1 - chunk.first)
    batch = chunk.batch.select(_BULK_PLACES).slice(begin, max(0, through + 1 - chunk.first - begin))
    chosen = batch if schemas is None else _of_schemas(batch, schemas)
    if pick is None or not chosen.num_rows:
        return chosen
    rows = pick.rows(chosen)
    return chosen if len(rows) == chosen.num_rows else chosen.take(rows)


def _of_schemas(batch: pa.RecordBatch, schemas: Collection[SchemaId]) -> pa.RecordBatch:
    """Return the changes of some schema versions. Neighbours are mostly of one: then there is nothing to compare."""
    column = batch.column("schema")
    bounds = pc.min_max(column).as_py()
    if bounds["min"] == bounds["max"]:
        return batch if bounds["min"] in schemas else batch.slice(0, 0)
    return batch.filter(pc.is_in(column, value_set=pa.array(sorted(schemas), pa.int32())))


async def _border(log: LogWindow, wanted: Offset, floor: Offset) -> Offset:
    """Return the last offset up to `wanted` at which a commit ends; the next one where that is not beyond `floor`."""
    if wanted == log.head:
        return wanted
    chunk = await log.read(Offset(wanted - 1))
    assert chunk is not None
    index = Index(chunk.batch.column("index")[wanted - chunk.first].as_py())
    last = await log.commits.offset_before(Index(index + 1))
    if last == wanted:
        return last
    try:
        before = await log.commits.offset_before(index)
    except BehindHorizonError:
        return last
    return before if before > floor else last


async def _within_bytes(log: LogWindow, after: Offset, through: Offset, bytes_max: int) -> Offset:
    """Return the last offset up to which an interval takes no more than about this many bytes; at least one change."""
    size = await log.commits.size_after(after)
    low, high = Offset(after + 1), through  # low fits, or is the least that there is
    while low < high:
        middle = Offset((low + high + 1) // 2)
        if size - await log.commits.size_after(middle) <= bytes_max:
            low = middle
        else:
            high = Offset(middle - 1)
    return low
