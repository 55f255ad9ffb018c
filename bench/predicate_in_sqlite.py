"""SQL predicates evaluated by an SQLite in memory, against the Python that we make of them. Reports, passes no verdict.

`subquery` binds the cells of one row and asks `SELECT (predicate) FROM (SELECT ?1 AS a, …)`: the least that SQLite can
do, but inexact, since such columns have neither affinity nor collation. `table` is exact: it inserts the rows of a
chunk into a table with the columns as they are declared, and asks which rows the predicate is true of.
"""

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import apsw
import msgspec

from bench.predicate import CASES, CHANGES, SCHEMA, Images, changes
from tailrace.sql.sqlite.predicate import compile_where

ROUNDS = 5
CHUNKS = (1, 16, 1024)
"""Changes that are evaluated at one time."""

Select = Callable[[Sequence[int], Images, Images], list[bool]]


def decoder(columns: Sequence[str]) -> Callable[[bytes], tuple[Any, ...]]:
    """Return what reads the cells that a predicate needs: as quick as ours."""
    fields = [(name, Any, None) for name in columns]
    decode = msgspec.json.Decoder(msgspec.defstruct("Cells", fields, gc=False)).decode
    return lambda image: msgspec.structs.astuple(decode(image))


def by_subquery(where: str, columns: Sequence[str]) -> Select:
    """Return a filter that asks SQLite once for each image."""
    connection = apsw.Connection(":memory:")
    aliases = ", ".join(f"?{number} AS {name}" for number, name in enumerate(columns, 1))
    sql = f"SELECT ({where}) FROM (SELECT {aliases})"
    cells = decoder(columns)
    cursor = connection.cursor()

    def passes(image: bytes | None) -> bool:
        return image is not None and bool(cursor.execute(sql, cells(image)).get)

    return lambda _, befores, afters: [
        passes(after) or passes(before) for before, after in zip(befores, afters, strict=True)
    ]


def by_table(where: str, columns: Sequence[str]) -> Select:
    """Return a filter that puts the images of a chunk into a table, and asks SQLite once."""
    connection = apsw.Connection(":memory:")
    declared = ", ".join(f"{name} {column.declared}" for name in columns if (column := SCHEMA.column(name)))
    connection.execute(f"CREATE TABLE image (place, {declared})")
    insert = f"INSERT INTO image VALUES (?{', ?' * len(columns)})"
    ask = f"SELECT DISTINCT place FROM image WHERE {where}"
    cells = decoder(columns)

    def select(_: Sequence[int], befores: Images, afters: Images) -> list[bool]:
        connection.execute("BEGIN")
        for images in (befores, afters):
            rows = [(place, *cells(image)) for place, image in enumerate(images) if image is not None]
            connection.executemany(insert, rows)
        passing = {place for (place,) in connection.execute(ask)}
        connection.execute("ROLLBACK")
        return [place in passing for place in range(len(befores))]

    return select


def seconds(select: Select, batch: tuple[list[int], Images, Images], size: int) -> float:
    """Return the processor time of a change, in chunks of a size."""
    best = float("inf")
    parts = [tuple(column[begin : begin + size] for column in batch) for begin in range(0, CHANGES, size)]
    for _ in range(ROUNDS):
        begin_s = time.process_time()
        for part in parts:
            select(*part)
        best = min(best, time.process_time() - begin_s)
    return best / CHANGES


def main() -> int:
    batch = changes()
    for name, where, _, _ in CASES:
        ours = compile_where(where, SCHEMA)
        if ours.pairs:
            continue  # it needs a table with both images: more columns, no other result
        columns = sorted(ours.columns)
        answers = ours.select(*batch)
        for way, make in (("subquery", by_subquery), ("table", by_table)):
            theirs = make(where, columns)
            if theirs(*batch) != answers:
                print(f"predicate in SQLite, {name}: the answers of {way} differ", flush=True)
                return 1
            told = []
            for size in CHUNKS:
                mine, other = seconds(ours.select, batch, size), seconds(theirs, batch, size)
                told.append(f"{other / mine:.1f}x in chunks of {size} ({mine * 1e9:.0f} → {other * 1e9:.0f} ns)")
            print(f"predicate in SQLite, {name}, {way}: {', '.join(told)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
