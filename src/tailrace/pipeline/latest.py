"""Leaving out changes that a later one of the same row makes void, for whoever wants the last state alone. Pure."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.model.number import SchemaId
from tailrace.model.op import Op
from tailrace.model.table import TableSchema

__all__ = ["latest"]


def latest(batch: pa.RecordBatch, schemas: Mapping[SchemaId, TableSchema]) -> pa.RecordBatch:
    """Return changes of rows, in order, without those that a later one makes void, and without rows before updates.

    A row that gets another key is deleted under the one and inserted under the other, so that none is missed.
    """
    ops = batch.column("op").to_numpy(zero_copy_only=False)
    kept = np.zeros(len(ops), bool)
    kept[_last_places(batch, schemas)] = True
    kept &= ops != Op.SCHEMA
    before = batch.schema.get_field_index("before")
    images = pc.if_else(pa.array(ops == Op.UPDATE), pa.scalar(None, pa.binary()), batch.column(before))
    return batch.set_column(before, batch.schema.field(before), images).filter(pa.array(kept))


def _last_places(batch: pa.RecordBatch, schemas: Mapping[SchemaId, TableSchema]) -> Any:
    """Return the places of the last change of each row."""
    names = _names(batch, schemas)
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
