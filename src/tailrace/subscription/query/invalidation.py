"""Scans the log's changes for those that can touch a query's result."""

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from tailrace.model.chunk import Chunk
from tailrace.model.image import decode_image
from tailrace.model.number import Offset
from tailrace.model.op import Op
from tailrace.model.table import TableSchema
from tailrace.subscription.query.etag import QueryState, advance
from tailrace.subscription.query.relevance import Judge

__all__ = ["Scan", "scan"]


class Scan(Struct, frozen=True):
    """What one chunk meant to a query: the state after it and the offsets of the changes that can touch the result."""

    state: QueryState
    relevant: tuple[Offset, ...]


def scan(state: QueryState, judge: Judge, chunk: Chunk) -> Scan:
    """Judge the changes of a chunk that follow `state.scanned`. Changes of other tables are not even decoded."""
    if chunk.last <= state.scanned:
        return Scan(state, ())
    found: list[Offset] = []
    versions: dict[str, Offset] = {}
    concerned = {number: schema for number, schema in chunk.schemas.items() if judge.concerns(schema.table.wire)}
    rows = chunk.batch.slice(max(0, state.scanned + 1 - chunk.first))
    mask = pc.is_in(rows.column("schema"), value_set=pa.array(list(concerned), pa.int32()))
    rows = rows.filter(mask)
    names = ("offset", "op", "schema", "before", "after")
    for offset, op, number, before, after in zip(*(rows.column(name).to_pylist() for name in names), strict=True):
        if _relevant(judge, Op(op), concerned[number], before, after):
            found.append(offset)
            versions[concerned[number].table.wire] = offset
    return Scan(advance(state, versions, chunk.last), tuple(found))


def _relevant(judge: Judge, op: Op, schema: TableSchema, before: bytes | None, after: bytes | None) -> bool:
    table = schema.table.wire
    if op is Op.SCHEMA:
        return judge.relevant(table, op, None, None)
    return judge.relevant(
        table,
        op,
        None if before is None else decode_image(before, schema),
        None if after is None else decode_image(after, schema),
    )
