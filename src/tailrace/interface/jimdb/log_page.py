"""The changes of a range that follow an offset of the log."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from tailrace.interface.jimdb.bounds import ordered_of
from tailrace.interface.jimdb.options import PullOptions
from tailrace.interface.jimdb.row import Pulled, PulledLog, value_of
from tailrace.meta.key_range import KeyRange
from tailrace.model.chunk import Chunk
from tailrace.model.errors import BehindHorizonError
from tailrace.model.number import Index, Offset
from tailrace.model.op import Op
from tailrace.model.table import TableName
from tailrace.subscription.log_view import LogWindow
from tailrace.subscription.restrict import HIDDEN, Restriction

__all__ = ["TableDropped", "TableTruncated", "read_changes"]

_COLUMNS = ("offset", "index", "op", "schema", "key", "before", "after")


class TableDropped(Struct, frozen=True):
    """The table was dropped with the first change that is left to read."""


class TableTruncated(Struct, frozen=True):
    """The table was truncated with the first change that is left to read: no change of single rows says that."""

    offset: Offset


class _Taken(Struct):
    """What an answer has so far."""

    changes: list[tuple[Index, Pulled]] = []
    size_bytes: int = 0

    def fits(self, change: Pulled, options: PullOptions) -> bool:
        if not self.changes:
            return True
        return len(self.changes) < options.rows_max and self.size_bytes + change.size_bytes <= options.bytes_max

    def add(self, index: Index, change: Pulled) -> None:
        self.changes.append((index, change))
        self.size_bytes += change.size_bytes


async def read_changes(
    log: LogWindow,
    table: TableName,
    within: KeyRange,
    after: Offset,
    restriction: Restriction | None,
    options: PullOptions,
) -> PulledLog | TableDropped | TableTruncated:
    """Return the changes of a range after an offset, up to the bounds of an answer; none where there are none yet.

    An answer ends where a commit ends, unless that commit alone is too large for one.

    Raises:
        BehindHorizonError: The change after `after` was removed by retention.
        BeyondHeadError: `after` lies beyond the head.
        PermissionDeniedError: A row predicate of the restriction does not fit its table.
    """
    taken = _Taken()
    place = after
    while place - after < options.scan_changes_max and (chunk := await log.read(place)) is not None:
        if restriction is not None:
            chunk = restriction.apply(chunk)
        for offset, index, op, schema_id, key, old, image in _rows(chunk, table, place):
            if op == Op.SCHEMA:
                if _drops(image):
                    before = Offset(offset - 1)
                    return TableDropped() if before == after else PulledLog(_changes(taken), before)
                continue
            if op == Op.TRUNCATE:
                before = Offset(offset - 1)
                return TableTruncated(offset) if before == after else PulledLog(_changes(taken), before)
            schema = chunk.schemas[schema_id]
            ordered = ordered_of(within.table_id, key, schema)
            if not within.contains(ordered):
                continue
            value = None if op == Op.DELETE or image is None else value_of(image, schema, old)
            change = Pulled(ordered, value)
            if not taken.fits(change, options):
                return await _cut(log, taken, Index(index), Offset(offset - 1))
            taken.add(Index(index), change)
        place = chunk.last
    return PulledLog(_changes(taken), place)


def _rows(chunk: Chunk, table: TableName, after: Offset) -> Iterator[tuple[Any, ...]]:
    """Yield the changes of a table in a chunk that follow an offset and may be seen."""
    wanted = [number for number, schema in chunk.schemas.items() if schema.table == table]
    batch = chunk.batch.select(list(_COLUMNS)).slice(after + 1 - chunk.first)
    chosen = pc.is_in(batch.column("schema"), value_set=pa.array(wanted, pa.int32()))
    chosen = pc.and_(chosen, pc.not_equal(batch.column("op"), pa.scalar(HIDDEN, pa.int8())))
    batch = batch.filter(chosen)
    return zip(*(batch.column(name).to_pylist() for name in _COLUMNS), strict=True)


async def _cut(log: LogWindow, taken: _Taken, index: Index, before: Offset) -> PulledLog:
    """Return what fits into an answer, if a change of the commit `index`, the one behind `before`, does not."""
    whole = [change for number, change in taken.changes if number != index]
    if whole:
        with suppress(BehindHorizonError):
            return PulledLog(whole, await log.commits.offset_before(index))
    return PulledLog(_changes(taken), before)


def _changes(taken: _Taken) -> list[Pulled]:
    return [change for _, change in taken.changes]


def _drops(image: bytes | None) -> bool:
    """Tell whether a schema change drops its table."""
    ddl = msgspec.json.decode(image).get("ddl", "") if image else ""
    return isinstance(ddl, str) and ddl.startswith("DROP TABLE ")
