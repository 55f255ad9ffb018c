"""Scans the log's changes for those that can touch a query's result."""

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from msgspec import json as msgspec_json

from tailrace.model.chunk import Chunk
from tailrace.model.number import Offset
from tailrace.model.op import ROWLESS, Op
from tailrace.model.table import TableSchema
from tailrace.model.value import from_natural
from tailrace.sql.query import Judge, RowImage
from tailrace.subscription.query.etag import QueryState, advance

__all__ = ["Scan", "scan"]


class Scan(Struct, frozen=True):
    """What one chunk meant to a query: the state after it and the offsets of the changes that can touch the result.

    `judged` changes were of tables on which the query depends.
    """

    state: QueryState
    relevant: tuple[Offset, ...]
    judged: int = 0


def scan(state: QueryState, judge: Judge, chunk: Chunk) -> Scan:
    """Judge the changes of a chunk that follow `state.scanned`. Changes of other tables are not even decoded."""
    if chunk.last <= state.scanned:
        return Scan(state, ())
    found: list[Offset] = []
    versions: dict[str, Offset] = {}
    concerned = {
        number: (schema.table.wire, _Decoder(schema, judge))
        for number, schema in chunk.schemas.items()
        if judge.concerns(schema.table.wire)
    }
    rows = chunk.batch.slice(max(0, state.scanned + 1 - chunk.first))
    mask = pc.is_in(rows.column("schema"), value_set=pa.array(list(concerned), pa.int32()))
    rows = rows.filter(mask)
    names = ("offset", "op", "schema", "before", "after")
    for offset, op, number, before, after in zip(*(rows.column(name).to_pylist() for name in names), strict=True):
        table, decoder = concerned[number]
        images = (None, None) if op in ROWLESS else (decoder.decode(before), decoder.decode(after))
        if judge.relevant(table, Op(op), *images):
            found.append(offset)
            versions[table] = offset
    return Scan(advance(state, versions, chunk.last), tuple(found), len(rows))


class _Decoder:
    """Decodes those cells of a table's images that a judge looks at."""

    def __init__(self, schema: TableSchema, judge: Judge) -> None:
        names = judge.columns(schema.table.wire)
        self._columns = [column for column in schema.columns if column.name in names]

    def decode(self, image: bytes | None) -> RowImage | None:
        if image is None:
            return None
        cells = msgspec_json.decode(image)
        return {one.name: from_natural(cells[one.name], one) for one in self._columns if one.name in cells}
