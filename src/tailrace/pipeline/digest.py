"""Rows reduced to their keys and a checksum each, kept on disk, and what differs between a source and a sink.

Keys fall into buckets by their hash. Buckets are compared first, by the sum of their checksums; only those that differ,
or that changed while the rows were read, are compared key by key, this many at a time as fit into memory.

A row of which the source did not send all cells has no checksum of its own: those that it lacks are the ones of the row
before it. Where such rows come, each column has a checksum; the state of a key is the newest one of each.
"""
# ruff: noqa: S608 (identifiers are quoted)

from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum, StrEnum
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.pipeline.evolve import fitted
from tailrace.pipeline.fold import OFFSET
from tailrace.pipeline.rows import RANGE
from tailrace.pipeline.sink.base import ChangeType
from tailrace.pipeline.truncation import is_truncation
from tailrace.pipeline.unchanged import lacking

__all__ = ["Difference", "Digests", "Side"]

_BUCKETS = 4096
_ROWS_AT_ONCE = 500_000
"""About how many rows are compared key by key at one time."""

_MEMORY_BYTES_MAX = 128 << 20
_THREADS = 2


class Difference(StrEnum):
    """How a sink differs from its source in one key."""

    MISSING = "missing"
    EXTRA = "extra"
    DIFFERS = "differs"
    TWICE = "twice"
    """The sink has several rows of it."""


class Side(IntEnum):
    """Whose rows or changes are added."""

    SOURCE = 0
    SINK = 1
    BOTH = 2


class Digests:
    """The digests of one table of both sides. Changes count in order of their offsets; rows that were read come last.

    Add everything, then `compare` once; the rest tells what that found. `by_column` is for changes of which some lack
    cells; it takes more of the disk. For one thread.
    """

    def __init__(
        self,
        directory: Path,
        key: Sequence[str],
        columns: pa.Schema,
        rows_at_once: int = _ROWS_AT_ONCE,
        *,
        by_column: bool = False,
    ) -> None:
        self.columns = columns
        self.rows = 0
        """Rows that the source has."""

        self.counts: Mapping[Difference, int] = {}
        self.ranges_differing: tuple[int, ...] = ()
        self._rows_at_once = rows_at_once
        self._key = pa.schema([columns.field(name) for name in key])
        self._connection = duckdb.connect(str(directory / "digests.db"))
        for name, value in {
            "TimeZone": "'UTC'",
            "memory_limit": f"'{_MEMORY_BYTES_MAX}B'",
            "threads": _THREADS,
            "temp_directory": f"'{_escaped(str(directory / 'spilled'))}'",
            "preserve_insertion_order": "false",
        }.items():
            self._run(f"SET {name} = {value}")
        self._keys = ", ".join(_quoted(f"k{place}") for place in range(len(key)))
        self._cells = columns.names if by_column else []
        self._run(
            f"CREATE TABLE digests AS {self._select('NULL', 'NULL', 'NULL', 'NULL')}", none=self._key.empty_table()
        )
        self._run(f"CREATE TABLE faults AS SELECT {self._keys}, range, NULL::VARCHAR AS fault FROM digests")

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()

    def add_changes(self, side: Side, changes: pa.Table) -> None:
        """Add changes, or rows that were read, with `_change_type` and `_offset`; rows of the source with `_range`.

        Changes are added in order as far as truncations go: what one removes comes before it.
        """
        begin = 0
        for place in pc.indices_nonzero(is_truncation(changes)).to_pylist():
            self._add_changes(side, changes.slice(begin, place - begin))
            self._forget(side, changes[OFFSET][place].as_py())
            begin = place + 1
        self._add_changes(side, changes.slice(begin))

    def _forget(self, side: Side, offset: int) -> None:
        """Forget what a side had before a truncation. All that is before it has been added."""
        sides = (side,) if side is not Side.BOTH else tuple(Side)
        listed = ", ".join(str(int(one)) for one in sides)
        self._run(f"DELETE FROM digests WHERE side IN ({listed}) AND place < {offset * 4 + 1}")

    def _add_changes(self, side: Side, changes: pa.Table) -> None:
        gone = f"_change_type IN ('{ChangeType.DELETE}', '{ChangeType.UPDATE_PREIMAGE}')"
        rank = (
            f"CASE _change_type WHEN '{ChangeType.READ}' THEN 2 WHEN '{ChangeType.UPDATE_PREIMAGE}' THEN 0 ELSE 1 END"
        )
        range_ = RANGE if RANGE in changes.column_names else "NULL"
        self._add(changes, int(side), f"_offset * 4 + {rank}", gone, range_)

    def add_rows(self, rows: pa.Table, offset: int) -> None:
        """Add rows that the sink has, as of an offset."""
        self._add(rows, int(Side.SINK), str(offset * 4 + 2), "false", "NULL")

    def compare(self) -> None:
        """Find what differs: buckets first, then keys."""
        clean = (
            "count(*) FILTER (side = 0) AS theirs, count(*) FILTER (side = 1) AS ours, "
            "sum(checksum::HUGEINT) FILTER (side = 0) IS NOT DISTINCT FROM sum(checksum::HUGEINT) FILTER (side = 1) "
            "AND count(*) FILTER (side = 0 AND place % 4 <> 2) = 0 AND count(*) FILTER (side = 2) = 0 AS same"
        )
        buckets = self._all(f"SELECT bucket, {clean} FROM digests GROUP BY bucket ORDER BY bucket")
        unsure: list[int] = []
        waiting = 0
        for bucket, theirs, ours, same in buckets:
            if same and theirs == ours:
                self.rows += theirs
                continue
            unsure.append(bucket)
            waiting += theirs + ours
            if waiting >= self._rows_at_once:
                self._compare_keys(unsure)
                unsure, waiting = [], 0
        if unsure:
            self._compare_keys(unsure)
        self.counts = {
            Difference(fault): count for fault, count in self._all("SELECT fault, count(*) FROM faults GROUP BY 1")
        }
        ranges = self._all("SELECT DISTINCT range FROM faults WHERE range IS NOT NULL ORDER BY 1")
        self.ranges_differing = tuple(number for (number,) in ranges)

    def first(self, count: int) -> pa.Table:
        """Return the first keys that differ, in their order, with `_fault`."""
        found = self._table(f"SELECT {self._keys}, fault FROM faults ORDER BY ALL LIMIT {count}")
        return found.rename_columns([*self._key.names, "_fault"]).cast(pa.schema([*self._key, ("_fault", pa.string())]))

    def wanted(self, rows: pa.Table) -> pa.Table:
        """Return those of these rows of the source that the sink lacks, or has otherwise."""
        keys = fitted(rows, self._key).rename_columns([f"k{place}" for place in range(len(self._key))])
        numbered = keys.append_column("_place", pa.array(range(rows.num_rows), pa.int64()))
        same = " AND ".join(f"f.k{place} IS NOT DISTINCT FROM t.k{place}" for place in range(len(self._key)))
        found = self._table(
            f"SELECT t._place AS _place FROM t SEMI JOIN faults f ON {same} "
            f"AND f.fault <> '{Difference.EXTRA}' ORDER BY 1",
            t=numbered,
        )
        return rows.take(found["_place"])

    def unwanted(self, size: int) -> Iterator[pa.Table]:
        """Yield the keys that the sink has and should not, or has twice, this many at a time."""
        kinds = f"'{Difference.EXTRA}', '{Difference.TWICE}'"
        cursor = self._connection.cursor()
        found: Any = cursor.sql(f"SELECT {self._keys} FROM faults WHERE fault IN ({kinds})").to_arrow_reader(size)
        for batch in found:
            yield pa.table(batch).rename_columns(self._key.names).cast(self._key)

    def _add(self, rows: pa.Table, side: int, place: str, gone: str, range_: str) -> None:
        names = [name for name in ("_change_type", "_offset", RANGE) if name in rows.column_names]
        table = fitted(rows, self.columns)
        for name in names:
            table = table.append_column(name, rows[name])
        if self._cells:
            masks = lacking(rows)
            for number, name in enumerate(self._cells):
                mask = pa.array(masks[name]) if name in masks else pa.repeat(pa.scalar(value=False), rows.num_rows)
                table = table.append_column(f"_lacks{number}", mask)
        hashed = f"hash({', '.join(map(_quoted, self.columns.names))})"
        self._run(f"INSERT INTO digests {self._select(side, place, gone, range_, hashed)}", none=table)

    def _select(self, side: Any, place: str, gone: str, range_: str, hashed: str = "") -> str:
        """Return what makes digests of the rows of `none`; without `hashed`, of none."""
        named = [f"{_quoted(name)} AS k{number}" for number, name in enumerate(self._key.names)]
        bucket = f"hash({', '.join(map(_quoted, self._key.names))}) % {_BUCKETS}"
        # A row that is gone tells nothing of the columns: an update that follows may lack what it had.
        cells = [
            f", {f'CASE WHEN {gone} OR _lacks{number} THEN NULL ELSE hash({_quoted(name)}) END' if hashed else '0'}"
            f"::UBIGINT AS c{number}"
            for number, name in enumerate(self._cells)
        ]
        return (
            f"SELECT {', '.join(named)}, {side}::TINYINT AS side, ({bucket})::SMALLINT AS bucket, "
            f"({place})::BIGINT AS place, ({gone})::BOOLEAN AS gone, ({range_})::INTEGER AS range, "
            f"{hashed or '0'}::UBIGINT AS checksum{''.join(cells)} FROM none"
        )

    def _compare_keys(self, buckets: Sequence[int]) -> None:
        """Compare the keys of some buckets; keep what differs, and count the rows of the source."""
        listed = ", ".join(map(str, buckets))
        same = " AND ".join(f"s.k{place} IS NOT DISTINCT FROM t.k{place}" for place in range(len(self._key)))
        keys = ", ".join(f"coalesce(s.k{place}, t.k{place}) AS k{place}" for place in range(len(self._key)))
        fault = (
            f"CASE WHEN t.checksum IS NULL THEN '{Difference.MISSING}' "
            f"WHEN s.checksum IS NULL THEN '{Difference.EXTRA}' "
            f"WHEN t.times > 1 THEN '{Difference.TWICE}' ELSE '{Difference.DIFFERS}' END"
        )
        newest = "max_by(checksum, place)"
        if self._cells:
            newest = f"hash({', '.join(f'max_by(c{number}, place)' for number in range(len(self._cells)))})"
        for name, side in (("theirs", Side.SOURCE), ("ours", Side.SINK)):
            self._run(
                f"CREATE OR REPLACE TEMP TABLE {name} AS "
                f"SELECT {self._keys}, {newest} AS checksum, max_by(range, place) AS range, "
                f"count(*) FILTER (side = {int(side)}) AS times FROM digests "
                f"WHERE side IN ({int(side)}, {int(Side.BOTH)}) AND bucket IN ({listed}) "
                f"GROUP BY {self._keys} HAVING NOT max_by(gone, place)"
            )
        self._run(
            f"INSERT INTO faults SELECT {keys}, s.range, {fault} FROM theirs s FULL JOIN ours t ON {same} "
            "WHERE s.checksum IS DISTINCT FROM t.checksum OR t.times > 1"
        )
        self.rows += self._all("SELECT count(*) FROM theirs")[0][0]

    def _run(self, statement: str, **tables: pa.Table) -> None:
        for name, table in tables.items():
            self._connection.register(name, table)
        self._connection.execute(statement)
        for name in tables:
            self._connection.unregister(name)

    def _all(self, query: str) -> list[tuple[Any, ...]]:
        return self._connection.execute(query).fetchall()

    def _table(self, query: str, **tables: pa.Table) -> pa.Table:
        for name, table in tables.items():
            self._connection.register(name, table)
        found = self._connection.sql(query).to_arrow_table()
        for name in tables:
            self._connection.unregister(name)
        return found


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _escaped(text: str) -> str:
    return text.replace("'", "''")
