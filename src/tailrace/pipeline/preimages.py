"""Leaving out the rows before updates that nobody needs: those whose key is the same afterwards. Pure."""

from collections.abc import Iterable, Sequence

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.model.errors import ConfigError
from tailrace.model.table import TableSchema
from tailrace.pipeline.duck import connection
from tailrace.pipeline.sink.base import ChangeType

__all__ = ["moved_alone", "surely_kept_left_out"]


def moved_alone(rows: pa.RecordBatch, key: Sequence[str]) -> pa.RecordBatch:
    """Return rows of changes without the rows before updates that keep their key. Each is followed by the row after it.

    Raises:
        ConfigError: A column of the key, or the kind of change, is not among the columns.
    """
    for name in ("_change_type", *key):
        if name not in rows.schema.names:
            raise ConfigError(f"option preimages needs the column {name!r}: read it, too")
    if rows.num_rows < 2:
        return rows
    words = rows.column("_change_type")
    same = pc.equal(words[:-1], str(ChangeType.UPDATE_PREIMAGE))
    for name in key:
        column = rows.column(name)
        same = pc.and_(same, pc.fill_null(pc.equal(column[:-1], column[1:]), fill_value=False))
    kept = pa.concat_arrays([pc.invert(same), pa.array([True])])
    return rows.filter(kept)


def surely_kept_left_out(rows: pa.Table, versions: Iterable[TableSchema]) -> pa.Table:
    """Return rows in the layout `json` without the rows before updates that keep their key, as far as is seen at once.

    That is the case where a table has one key column, its first: then both images begin with the key, as text. So half
    of the images of updates need not be taken apart.
    """
    schemas = list(versions)
    others = {schema.table for schema in schemas if schema.key != (schema.columns[0].name,)}
    begins = {(schema.table.wire, schema.columns[0].name) for schema in schemas if schema.table not in others}
    before = pc.equal(rows["_change_type"], str(ChangeType.UPDATE_PREIMAGE))
    if rows.num_rows < 2 or not begins or not pc.any(before).as_py():
        return rows
    tests = " OR ".join(
        f"(_table = {_literal(table)} AND starts_with(_row, {_literal(_opening(name))} || key || ','))"
        for table, name in sorted(begins)
    )
    query = f"SELECT {tests} AS same FROM (SELECT *, substring(_key, 2, length(_key) - 2) AS key FROM given)"  # noqa: S608
    looked = connection().from_arrow(rows.select(["_table", "_key", "_row"])).query("given", query).to_arrow_table()
    same = pc.fill_null(looked["same"].combine_chunks(), fill_value=False)
    offsets = rows["_offset"].combine_chunks()
    pairs = pc.and_(pc.and_(same[:-1], same[1:]), pc.equal(offsets[:-1], offsets[1:]))
    kept = pc.invert(pc.and_(before.combine_chunks()[:-1], pairs))
    return rows.filter(pa.concat_arrays([kept, pa.array([True])]))


def _opening(name: str) -> str:
    """Return how the image of a row begins whose first column has this name."""
    return f"{{{msgspec.json.encode(name).decode()}:"


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
