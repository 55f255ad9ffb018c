"""A whole filter: its parts are ANDed, and equal ones are found equal."""

import pyarrow as pa
import pytest

from tailrace.model.chunk import ENVELOPE, Chunk
from tailrace.model.image import encode_image
from tailrace.model.number import SchemaId
from tailrace.model.op import Op
from tailrace.model.table import Column, Kind, TableName, TableSchema
from tailrace.sql.sqlite.predicate import compile_where
from tailrace.subscription.cel.compile import compile_cel
from tailrace.subscription.columns import ChangedColumns
from tailrace.subscription.filter import Changes, RowFilter
from tailrace.subscription.key_filter import ExactKey, KeyBounds

SCHEMA = TableSchema(
    TableName("app", "t"), 1, (Column("id", Kind.I64, "INTEGER"), Column("size", Kind.I64, "INTEGER")), ("id",)
)
ROWS = (Op.INSERT, Op.UPDATE, Op.DELETE)


def changes(*drawn: tuple[Op, int, int | None, int | None]) -> Changes:
    """Return changes given as op, key, and the size before and after."""
    images = [
        [None if size is None else encode_image({"id": key, "size": size}, SCHEMA) for size in sizes]
        for _, key, *sizes in drawn
    ]
    keys = [b"[%d]" % key for _, key, *_ in drawn]
    return Changes([op for op, *_ in drawn], [SchemaId(1)] * len(drawn), keys, *map(list, zip(*images, strict=True)))


BATCH = changes(
    (Op.INSERT, 1, None, 5),
    (Op.UPDATE, 2, 5, 6),
    (Op.UPDATE, 3, 5, 5),
    (Op.UPDATE, 4, 1, 5),
    (Op.DELETE, 5, 5, None),
    (Op.UPDATE, 9, 5, 6),
)


PARTS = {
    "ops": (RowFilter([SCHEMA.table], (Op.UPDATE,)), [1, 2, 3, 5]),
    "key": (RowFilter([SCHEMA.table], ROWS, key=ExactKey([{"t": "i64", "v": 3}], SCHEMA)), [2]),
    "bounds": (
        RowFilter([SCHEMA.table], ROWS, bounds=KeyBounds({"upper_bound": {"t": "i64", "v": 5}}, SCHEMA)),
        [0, 1, 2, 3, 4],
    ),
    "columns": (RowFilter([SCHEMA.table], ROWS, columns=ChangedColumns(["size"], SCHEMA)), [0, 1, 3, 4, 5]),
    "where": (
        RowFilter([SCHEMA.table], ROWS, predicates=[compile_where("before.size = 5", SCHEMA)]),
        [1, 2, 4, 5],
    ),
    "cel": (RowFilter([SCHEMA.table], ROWS, predicates=[compile_cel("row.size < 6", SCHEMA)]), [0, 2, 3, 4]),
}


@pytest.mark.parametrize(("row_filter", "expected"), PARTS.values(), ids=PARTS)
def test_each_part_passes_its_own(row_filter, expected):
    assert list(row_filter.narrow(BATCH, range(6))) == expected


def test_every_part_must_pass():
    everything = RowFilter(
        [SCHEMA.table],
        (Op.UPDATE,),
        bounds=PARTS["bounds"][0].bounds,
        columns=PARTS["columns"][0].columns,
        predicates=PARTS["where"][0].predicates,
    )
    assert list(everything.narrow(BATCH, range(6))) == [1]
    assert list(everything.narrow(BATCH, [0, 5])) == []


@pytest.mark.parametrize("row_filter", [row_filter for row_filter, _ in PARTS.values()], ids=PARTS)
def test_a_chunk_is_narrowed_as_its_changes_are(row_filter):
    number = len(BATCH.ops)
    nothing = [0] * number
    lists = [
        [*range(1, number + 1)],
        nothing,
        nothing,
        nothing,
        *(getattr(BATCH, name) for name in BATCH.__struct_fields__),
    ]
    chunk = chunk_of([*lists, [None] * number, nothing, [False] * number])
    rows = [row for row in range(number) if BATCH.ops[row] in row_filter.ops]
    assert list(row_filter.narrow_chunk(chunk, pa.array(rows, pa.int64()))) == list(
        row_filter.narrow(BATCH, range(number))
    )
    assert list(row_filter.narrow_chunk(chunk, pa.array([], pa.int64()))) == []


def chunk_of(columns: list[list]) -> Chunk:
    arrays = [pa.array(column, field.type) for column, field in zip(columns, ENVELOPE, strict=True)]
    return Chunk(pa.record_batch(arrays, ENVELOPE), {SchemaId(1): SCHEMA})


def test_filters_that_choose_alike_are_equal():
    def make(text: str, *ops: Op) -> RowFilter:
        return RowFilter([SCHEMA.table], ops, predicates=[compile_where(text, SCHEMA)])

    assert make("size = 5", Op.INSERT, Op.UPDATE) == make("SIZE==5", Op.UPDATE, Op.INSERT)
    assert len({make("size = 5", Op.INSERT), make("size = 6", Op.INSERT), make("size = 5", Op.UPDATE)}) == 3


def test_the_changes_of_a_chunk_are_its_columns():
    columns = [
        [7, 8],
        [1, 1],
        [0, 0],
        [0, 0],
        [1, 3],
        [1, 1],
        [b"[1]", b"[2]"],
        [None, b"{}"],
        [b"{}", None],
        [None, "p"],
        [1, 1],
        [False, False],
    ]
    found = Changes.of_chunk(chunk_of(columns))
    assert found == Changes([1, 3], [1, 1], [b"[1]", b"[2]"], [None, b"{}"], [b"{}", None])
