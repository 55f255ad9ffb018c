"""Rows that a server or Spark hands over, as typed changes of tables. Pure."""

import os
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.client.bulk_rows import RowsPage
from tailrace.model.table import TableSchema
from tailrace.pipeline.change_rows import CHANGE_COLUMNS, COMMIT_TIME, change_schema
from tailrace.pipeline.evolve import fitted
from tailrace.pipeline.sink.base import ChangeType, TableChanges
from tailrace.pipeline.sink.row import key_text
from tailrace.pipeline.typed import as_declared, decode_images, row_schema, source_schema
from tailrace.pipeline.unchanged import unsent, with_unsent

__all__ = ["changes_of_json", "read_rows"]

_ROWS_AT_ONCE = 65_536
"""More are decoded by several threads, each this many at a time."""

Versions = Mapping[tuple[str, int], TableSchema]
"""Schemas of tables by their names on the wires and their versions."""


def read_rows(page: RowsPage, schema: TableSchema) -> pa.Table:
    """Return the rows of a page as changes of the type `read`, with the columns of `schema`.

    Raises:
        MisfitError: A value does not fit its column's type.
    """
    count = page.rows.num_rows
    wanted = row_schema(schema)
    if page.typed:
        rows = fitted(pa.table(page.rows), source_schema(wanted, schema))
        cells = as_declared(rows.columns, wanted, schema, lambda row: key_text(rows, schema, row))
    else:
        cells = decode_images(page.rows.column("image"), page.rows.column("key"), schema, wanted).columns
    columns = [
        pa.repeat(pa.scalar(str(ChangeType.READ)), count),
        pa.repeat(pa.scalar(page.offset, pa.int64()), count),
        pa.repeat(pa.scalar(page.index, pa.int64()), count),
        pa.repeat(pa.scalar(page.time_us, COMMIT_TIME), count),
        *cells,
    ]
    return pa.Table.from_arrays(columns, schema=change_schema(schema))


def changes_of_json(rows: pa.Table, versions: Versions, as_text: Collection[str] = ()) -> list[TableChanges]:
    """Return the changes of a batch in the layout `json` by table, typed by the newest version that they have.

    Where an image lacks columns of its version, the column `UNCHANGED` tells which.

    Raises:
        MisfitError: A value does not fit its column's type.
    """
    batch = rows.combine_chunks()
    tables = []
    names = sorted(pc.unique(batch["_table"]).to_pylist())
    for name in names:
        chosen = batch if len(names) == 1 else batch.filter(pc.equal(batch["_table"], name)).combine_chunks()
        newest = versions[name, pc.max(chosen["_schema_version"]).as_py()]
        tables.append(TableChanges(newest, _typed(chosen, name, newest, versions, as_text)))
    return tables


def _typed(
    rows: pa.Table, name: str, newest: TableSchema, versions: Versions, as_text: Collection[str] = ()
) -> pa.Table:
    """Return rows of one table with the columns of the newest version."""
    wanted, columns = row_schema(newest, as_text), change_schema(newest, as_text)

    def typed(some: pa.Table) -> tuple[pa.Table, pa.Array | None]:
        images, keys = (_bytes(some[column]) for column in ("_row", "_key"))
        version = versions[name, some["_schema_version"][0].as_py()]
        decoded = decode_images(images, keys, version, wanted, as_text)
        table = pa.Table.from_arrays(
            [*(some[field.name].cast(field.type) for field in CHANGE_COLUMNS), *decoded.columns], schema=columns
        )
        return table, unsent(images, decoded, wanted, version)

    runs = list(_runs(rows))
    return with_unsent(list(map(typed, runs) if len(runs) == 1 else _threads().map(typed, runs)))


def _runs(rows: pa.Table) -> Iterator[pa.Table]:
    """Yield rows in runs of one version of their table's schema, of a length that suits a thread."""
    versions = rows["_schema_version"].to_numpy()
    borders = [0, *(np.flatnonzero(np.diff(versions)) + 1).tolist(), len(versions)]
    for begin, end in pairwise(borders):
        for first in range(begin, end, _ROWS_AT_ONCE):
            yield rows.slice(first, min(_ROWS_AT_ONCE, end - first))


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="tailrace-decode")


def _bytes(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays([chunk.cast(pa.binary()) for chunk in column.chunks])
