"""Rows reduced to their keys and a checksum each, and what differs between two sets of them. Pure."""
# ruff: noqa: S608 (identifiers are quoted)

from collections.abc import Sequence
from enum import StrEnum

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from tailrace.pipeline.evolve import fitted
from tailrace.pipeline.fold import DELETED, OFFSET, fold_current
from tailrace.pipeline.rows import RANGE
from tailrace.pipeline.sink.base import ChangeType

__all__ = ["Compared", "Fault", "compare", "digest", "read_as", "state"]

_CHECKSUM = "_checksum"
_COLUMNS = ("_change_type", OFFSET, "_commit_version", "_commit_timestamp", RANGE, _CHECKSUM)


class Fault(StrEnum):
    """How a sink differs from its source in one key."""

    MISSING = "missing"
    EXTRA = "extra"
    DIFFERS = "differs"


class Compared(Struct, frozen=True):
    """What a comparison of one table found: keys that differ, with what is wrong, and the checksums of the ranges."""

    rows: int
    """Rows that the source has."""

    faults: pa.Table
    """The key, `_range` (null for keys that the source does not have) and `_fault`."""

    ranges: int
    ranges_differing: tuple[int, ...]


def digest(rows: pa.Table, key: Sequence[str], columns: pa.Schema) -> pa.Table:
    """Return the changes reduced to what tells them apart: key, type, offset, range, and the checksum of `columns`."""
    if RANGE not in rows.column_names:
        rows = rows.append_column(RANGE, pa.nulls(rows.num_rows, pa.int64()))
    whole = fitted(rows, columns)
    hashed = _run(f"SELECT hash({', '.join(map(_quoted, columns.names))}) AS h FROM t", t=whole)
    keys = [whole[name] for name in key]
    kept = [rows[name] for name in _COLUMNS if name != _CHECKSUM]
    names = [*key, *(name for name in _COLUMNS if name != _CHECKSUM), _CHECKSUM]
    return pa.Table.from_arrays([*keys, *kept, hashed["h"]], names=names)


def state(digests: Sequence[pa.Table], key: Sequence[str]) -> pa.Table:
    """Return what is there after these changes, by key, in order of their offsets; rows that were read come last."""
    last = fold_current(pa.concat_tables(digests), key)
    live = last.filter(pc.invert(last[DELETED]))
    return live.select([*key, RANGE, _CHECKSUM])


def compare(source: pa.Table, sink: pa.Table, key: Sequence[str], ranges: int) -> Compared:
    """Compare two states: first the checksums of the ranges, then keys."""
    same = " AND ".join(f"s.{_quoted(name)} IS NOT DISTINCT FROM t.{_quoted(name)}" for name in key)
    keys = ", ".join(f"coalesce(s.{_quoted(name)}, t.{_quoted(name)}) AS {_quoted(name)}" for name in key)
    fault = (
        f"CASE WHEN t.{_CHECKSUM} IS NULL THEN '{Fault.MISSING}' "
        f"WHEN s.{_CHECKSUM} IS NULL THEN '{Fault.EXTRA}' ELSE '{Fault.DIFFERS}' END AS _fault"
    )
    faults = _run(
        f"SELECT {keys}, s.{RANGE} AS {RANGE}, {fault} FROM s FULL JOIN t ON {same} "
        f"WHERE s.{_CHECKSUM} IS DISTINCT FROM t.{_CHECKSUM} ORDER BY ALL",
        s=source,
        t=sink,
    )
    faults = faults.cast(pa.schema([*(source.schema.field(name) for name in [*key, RANGE]), ("_fault", pa.string())]))
    differing = sorted(number for number in pc.unique(faults[RANGE]).to_pylist() if number is not None)
    return Compared(source.num_rows, faults, ranges, tuple(differing))


def read_as(rows: pa.Table, offset: int) -> pa.Table:
    """Return rows that a sink has as changes of the type `read` at an offset."""
    count = rows.num_rows
    for name, value in (
        ("_change_type", pa.scalar(str(ChangeType.READ))),
        (OFFSET, pa.scalar(offset, pa.int64())),
        ("_commit_version", pa.scalar(0, pa.int64())),
        ("_commit_timestamp", pa.scalar(None, pa.timestamp("us", tz="UTC"))),
    ):
        rows = rows.append_column(name, pa.repeat(value, count))
    return rows


def _run(query: str, **tables: pa.Table) -> pa.Table:
    connection = duckdb.connect(":memory:")
    try:
        connection.execute("SET TimeZone = 'UTC'")
        for name, table in tables.items():
            connection.register(name, table)
        return connection.sql(query).to_arrow_table()
    finally:
        connection.close()


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
