"""Leaving out changes that a later one of the same row makes void, for whoever wants the last state alone. Pure."""

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.model.number import SchemaId
from tailrace.model.op import Op
from tailrace.model.table import TableSchema
from tailrace.pipeline.change_rows import drops

__all__ = ["latest"]

_IMAGE = msgspec.json.Decoder(dict[str, msgspec.Raw])


def latest(batch: pa.RecordBatch, schemas: Mapping[SchemaId, TableSchema]) -> pa.RecordBatch:
    """Return changes of rows, in order, without those that a later one makes void, and without rows before updates.

    A row that gets another key is deleted under the one and inserted under the other, so that none is missed. An update
    that does not send the whole row makes nothing void: all changes of such a row stay. So do all changes of a table
    whose rows no key tells apart.
    """
    ops = batch.column("op").to_numpy(zero_copy_only=False)
    names = _names(batch, schemas)
    last = _last_places(names)
    mask = np.zeros(len(ops), bool)
    mask[last] = True
    voiding = last[(np.bincount(names, minlength=len(last)) > 1) & (ops[last] == Op.UPDATE)]
    partial = _partial(batch, voiding, schemas)
    if partial:
        mask |= np.isin(names, names[partial])
    mask |= _unlike(batch, schemas)
    mask = (mask & (ops != Op.SCHEMA)) | drops(batch)
    before = batch.schema.get_field_index("before")
    images = pc.if_else(pa.array(ops == Op.UPDATE), pa.scalar(None, pa.binary()), batch.column(before))
    return batch.set_column(before, batch.schema.field(before), images).filter(pa.array(mask))


def _partial(batch: pa.RecordBatch, places: Any, schemas: Mapping[SchemaId, TableSchema]) -> list[int]:
    """Return those of some places at which the image after a change lacks columns.

    Nearly always none does, and that is quick to see: all images together have as many names of members as their tables
    have columns. A quotation mark before a colon ends such a name, unless it is escaped or within a typed literal.
    """
    if not len(places):
        return []
    images = batch.column("after").take(pa.array(places))
    numbers = batch.column("schema").take(pa.array(places)).to_numpy()
    versions, counts = np.unique(numbers, return_counts=True)
    columns = sum(len(schemas[n].columns) * count for n, count in zip(versions.tolist(), counts.tolist(), strict=True))
    buffer = images.buffers()[2]  # of what was just taken, so of nothing else
    written = b"" if buffer is None else buffer.to_pybytes()
    if written.count(b'":') == columns and b'\\":' not in written and b'{"t":' not in written:
        return []
    return [
        place
        for place, image, number in zip(places.tolist(), images.to_pylist(), numbers.tolist(), strict=True)
        if image is None or len(_IMAGE.decode(image)) < len(schemas[number].columns)
    ]


def _unlike(batch: pa.RecordBatch, schemas: Mapping[SchemaId, TableSchema]) -> Any:
    """Tell which changes are of tables in which several rows may have the same key."""
    numbers = [number for number, schema in schemas.items() if not schema.identity.is_unique]
    return np.isin(batch.column("schema").to_numpy(), numbers) if numbers else False


def _last_places(names: Any) -> Any:
    """Return the places of the last change of each row, by their names."""
    last = np.empty(names.max(initial=-1) + 1, np.int64)
    last[names] = np.arange(len(names))  # of equal names the last one counts
    return last


def _names(batch: pa.RecordBatch, schemas: Mapping[SchemaId, TableSchema]) -> Any:
    """Return a number for each change, from 0 without gaps: those of one key of a table, and no others, share it."""
    keys = _numbered(batch.column("key"))
    tables = {table: number for number, table in enumerate(sorted({one.table for one in schemas.values()}))}
    if len(tables) == 1:
        return keys
    by_schema = np.zeros(max(schemas) + 1, np.int64)
    for number, schema in schemas.items():
        by_schema[number] = tables[schema.table]
    owners = by_schema[batch.column("schema").to_numpy()]
    return _numbered(pa.array(keys.astype(np.int64) * len(tables) + owners))


def _numbered(column: pa.Array) -> Any:
    return column.dictionary_encode().indices.to_numpy()
