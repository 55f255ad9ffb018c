"""Messages of the bulk interface, members in the order of the wire. Pure."""

from collections.abc import Mapping, Sequence
from typing import Annotated

import msgspec
import pyarrow as pa
from msgspec import UNSET, Meta, Struct, UnsetType, field

from tailrace.delivery.http.place import PlaceParams
from tailrace.model.number import Index, Offset, SchemaId
from tailrace.model.table import TableName, TableSchema
from tailrace.subscription.bulk import BULK_SCHEMA

__all__ = [
    "SCHEMAS_KEY",
    "BulkResult",
    "BulkSchema",
    "BulkSubscribeParams",
    "BulkSubscribeResult",
    "BulkTable",
    "CutsResult",
    "PageHead",
    "RangesResult",
    "stream_schema",
    "tables_of",
]

SCHEMAS_KEY = b"tailrace.schemas"
"""Key of the metadata of a stream's schema that holds the schema versions which its changes may refer to, as JSON."""

_NAMES_MAX = 10_000


class BulkSchema(Struct, frozen=True):
    """A version of a table's schema; `id` is the number by which changes refer to it."""

    id: SchemaId
    schema: TableSchema


class BulkTable(Struct, frozen=True):
    """A table by its name on the wires, with all versions of its schema, oldest first."""

    table: str
    versions: Sequence[BulkSchema]


class BulkResult(Struct, frozen=True):
    """What there is to read of a source. `after` is the place that the request asked for."""

    source: str
    head: Offset
    horizon: Offset
    last_index: Index
    tables: Sequence[BulkTable]
    after: Offset | UnsetType = UNSET


class CutsResult(Struct, frozen=True):
    """Offsets at which commits end, rising."""

    head: Offset
    horizon: Offset
    cuts: Sequence[Offset]


class BulkSubscribeParams(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of a request for a durable subscription of a bulk reader."""

    tables: Annotated[list[str], Meta(max_length=_NAMES_MAX)] = []
    from_: str | Annotated[int, Meta(ge=0, le=2**63 - 1)] | PlaceParams | None = field(name="from", default=None)


class BulkSubscribeResult(Struct, frozen=True):
    """The subscription that was made; its reader begins after `offset`."""

    sub_id: str
    offset: Offset


class RangesResult(Struct, frozen=True):
    """Keys that cut an interval into runs, each the last of its run; and of the whole table its greatest key and rows.

    `last` is null where the table has no rows.
    """

    cuts: Sequence[str]
    last: str | None
    rows: int | UnsetType = UNSET


class PageHead(Struct, frozen=True):
    """Where the rows of a page belong: behind `offset`, the last change of the commit `index`.

    `last` is the key of the last row. The interval ends with it, or `end` is false and more rows may follow. The rows
    are `typed`, a column for each of the table's, or keys and images.
    """

    offset: Offset
    index: Index
    time_us: int
    schema: TableSchema
    last: str | None
    end: bool
    typed: bool


def tables_of(schemas: Mapping[SchemaId, TableSchema]) -> list[BulkTable]:
    """Return the tables of schema versions in order of their names."""
    tables: dict[TableName, list[BulkSchema]] = {}
    for number, schema in sorted(schemas.items()):
        tables.setdefault(schema.table, []).append(BulkSchema(number, schema))
    return [BulkTable(table.wire, versions) for table, versions in sorted(tables.items())]


def stream_schema(schemas: Mapping[SchemaId, TableSchema]) -> pa.Schema:
    """Return the Arrow schema of a stream whose changes refer to these schema versions."""
    versions = [BulkSchema(number, schema) for number, schema in sorted(schemas.items())]
    return BULK_SCHEMA.with_metadata({SCHEMAS_KEY: msgspec.json.encode(versions)})
