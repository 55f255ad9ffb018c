"""A table for the tests of predicates, and images of its rows."""

from tailrace.model.image import encode_image
from tailrace.model.table import Column, Kind, TableName, TableSchema

ORDERS = TableSchema(
    TableName("app", "orders"),
    1,
    (
        Column("id", Kind.I64, "INTEGER", nullable=False),
        Column("status", Kind.STR, "TEXT"),
        Column("amount", Kind.F64, "REAL"),
        Column("quantity", Kind.I64, "INTEGER"),
        Column("photo", Kind.BYTES, "BLOB"),
        Column("extra", Kind.ANY, ""),
    ),
    ("id",),
)


def image(**cells: object) -> bytes:
    """Return the image of an order; columns that are not named are left out."""
    return encode_image(cells, ORDERS)  # type: ignore[arg-type]
