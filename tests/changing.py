"""Changes of rows to tell others about, without a log."""

from tailrace.model.chunk import Change
from tailrace.model.image import NO_KEY, encode_image, encode_key
from tailrace.model.op import Op
from tailrace.model.table import Column, Kind, TableName, TableSchema

TIME_US = 1_763_280_000_123_456
"""2025-11-16T08:00:00.123456Z"""

ORDERS = TableSchema(
    TableName("shop", "orders"),
    3,
    (
        Column("id", Kind.I64, nullable=False),
        Column("customer", Kind.STR),
        Column("total", Kind.DEC),
        Column("paid", Kind.BOOL),
        Column("at", Kind.DATETIME),
        Column("photo", Kind.BYTES),
        Column("more", Kind.JSON),
    ),
    ("id",),
)


def change(op, before=None, after=None, *, schema=ORDERS, offset=7, index=4, row_number=1):
    """Return a change of a row that was `before` and is `after`, which need not name all columns."""
    row = after if after is not None else before
    key = [row[name] for name in schema.key] or [row_number]
    images = (None if image is None else encode_image(image, schema) for image in (before, after))
    return Change(offset, index, TIME_US, 0, op, schema, encode_key(key, schema), *images)


def insert(row, **named):
    return change(Op.INSERT, None, row, **named)


def update(before, after, **named):
    return change(Op.UPDATE, before, after, **named)


def truncate(*, schema=ORDERS, offset=7, index=4):
    return Change(offset, index, TIME_US, 0, Op.TRUNCATE, schema, NO_KEY, None, None)


def delete(row, **named):
    return change(Op.DELETE, row, None, **named)
