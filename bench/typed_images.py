"""Images read as typed columns: tables with bytes, wide ones and ones with values of another form, against plain rows.

Rates are cells for each second of processor time, so that tables of different widths can be compared. The limit is the
plain table, measured in the same run.
"""

import math
import random
import sys
import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from tailrace.model.image import encode_image
from tailrace.model.table import Column, Kind, TableName, TableSchema
from tailrace.pipeline.typed import decode_images, row_schema

ROWS = 65_536
ROUNDS = 5
RATIO_MIN = 1 / 3

PLAIN = (
    Column("id", Kind.I64),
    Column("customer", Kind.STR),
    Column("amount", Kind.F64),
    Column("qty", Kind.I64),
    Column("note", Kind.STR),
)
BYTES = Column("blob", Kind.BYTES)
WIDE = (Column("id", Kind.I64), *(Column(f"c{number}", PLAIN[number % 5].kind) for number in range(39)))
DICE = random.Random(7)
BLOBS = [DICE.randbytes(24) for _ in range(997)]


def cell(column: Column, row: int) -> Any:
    if column.kind is Kind.BYTES:
        return BLOBS[row % len(BLOBS)]
    return {Kind.I64: row, Kind.F64: row / 8, Kind.STR: f"text {row * 7919 % 100_003}"}[column.kind]


def rate(columns: tuple[Column, ...], misfit_each: int = 0) -> float:
    """Return how many cells are read in a second of processor time; every so many amounts are an infinity."""
    schema = TableSchema(TableName("app", "orders"), 1, columns, ("id",))

    def image(row: int) -> bytes:
        cells = {column.name: cell(column, row) for column in columns}
        if misfit_each and row % misfit_each == 0:
            cells["amount"] = math.inf
        return encode_image(cells, schema)

    images = pa.array([image(row) for row in range(ROWS)], pa.binary())
    keys = pa.array([b"[%d]" % row for row in range(ROWS)], pa.binary())
    wanted = row_schema(schema)
    best_s = min(seconds(lambda: decode_images(images, keys, schema, wanted)) for _ in range(ROUNDS))
    return ROWS * len(columns) / best_s


def seconds(run: Callable[[], object]) -> float:
    begin_s = time.process_time()
    run()
    return time.process_time() - begin_s


def main() -> int:
    plain = rate(PLAIN)
    print(f"plain table, {len(PLAIN)} columns: {plain / 1e6:.2f} M cells/s, {plain / len(PLAIN) / 1e3:.0f} k rows/s")
    worst = math.inf
    for name, columns, misfit_each in (
        ("with bytes", (*PLAIN, BYTES), 0),
        ("wide, 40 columns", WIDE, 0),
        ("wide, with bytes", (*WIDE, BYTES), 0),
        ("one infinity", PLAIN, ROWS),
        ("an infinity in 100 rows", PLAIN, 100),
        ("an infinity in 2 rows", PLAIN, 2),
    ):
        ratio = rate(columns, misfit_each) / plain
        print(f"{name}: {ratio:.2f} of the plain table's cells")
        if misfit_each != 2:  # half of a column is misfits: shown, without a limit
            worst = min(worst, ratio)
    print(f"worst ratio: {worst:.2f} (at least {RATIO_MIN:.2f})")
    return int(worst < RATIO_MIN)


if __name__ == "__main__":
    sys.exit(main())
