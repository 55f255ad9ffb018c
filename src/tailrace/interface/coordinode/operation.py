r"""Changes to operations: which storage keys a change touches, and how. Pure.

| change | operations |
|---|---|
| insert or update of a row | INSERT of its node key, with the new row |
| delete of a row | DELETE of its node key |
| insert of an edge | MERGE of both adjacency keys (add), INSERT of the edge-property key |
| update of an edge, same type and ends | INSERT of the edge-property key |
| update of an edge, others | those of its deletion, then those of its insertion |
| delete of an edge | MERGE of both adjacency keys (remove), DELETE of the edge-property key |
| schema change | INSERT of the schema key |
| truncation | INSERT of the schema key, with the statement `TRUNCATE TABLE` as its `ddl` |

Keys of rows begin with their ids, not with their table: no range of keys is a table's, so REMOVE_RANGE cannot say it.
A truncation of an edge table touches the type of its edges, or every type where a column has it.

A row of an edge table in which the type or an end is NULL is no edge but a row like any other. The old row of an update
or delete is in the field `before` of the operation on the node or edge-property key.

An INSERT puts the whole row: cells that the source did not send after an update are taken from the row before. Where
that lacks them, too, they are left out, and never nil. An edge cannot be named without its type and ends: where neither
the images nor the key have them, there is no operation that would be true, and the stream ends with an error.

Keys. `BE8` is eight bytes, big-endian; ids are those of nodes.

    partition 0   node:<BE2 shard>:<BE8 id>:<table>            a row whose key is one whole number from 0 to 2^63 - 1
                  node:<BE2 shard>:<BE8 id>:<table>\\0<key>     any other row; `key` is the JSON array of its key
    partition 1   adj:<TYPE>:out:<BE8 source id>, adj:<TYPE>:in:<BE8 target id>
    partition 2   edgeprop:<TYPE>:<BE8 source id>:<BE8 target id>[:<key>]
    partition 5   schema:table:<table>:<version>

The id of a row whose key is not such a number is 2^63 and more: the first eight bytes of the SHA-256 of the JSON array,
with the highest bit set. So a row and the end of an edge that refers to it by the same value have the same id.
"""

import hashlib
from collections.abc import Mapping
from enum import IntEnum

import msgspec
from msgspec import Struct

from tailrace.interface.coordinode.options import EdgeTable
from tailrace.interface.coordinode.protobuf import number_field, varint
from tailrace.interface.coordinode.selection import ANY_TYPE
from tailrace.interface.coordinode.value import RowLayout, cells_of, encode_row, encode_schema, shape_of
from tailrace.model.errors import SourceAbilityError
from tailrace.model.image import completed, key_image, lacks_cells
from tailrace.model.op import Op
from tailrace.model.table import TableSchema
from tailrace.model.value import Json

__all__ = [
    "BEFORE_FIELD",
    "NO_TYPES",
    "OPS_FIELD",
    "Mapper",
    "OpType",
    "Partition",
    "edge_property_key",
    "incoming_key",
    "node_id",
    "node_key",
    "outgoing_key",
    "schema_key",
]

OPS_FIELD = 6
"""Number of `ops` in a ChangeEvent."""

BEFORE_FIELD = 1001
"""Number of `before` in a ChangeOp: ours; clients that do not know it leave it alone."""

NO_TYPES: frozenset[str] = frozenset()
EVERY_TYPE = frozenset({ANY_TYPE})

_ADD, _REMOVE = b"\x01", b"\x02"
_encode_json = msgspec.json.Encoder().encode


class OpType(IntEnum):
    """The operations that we send, by their numbers."""

    INSERT = 1
    DELETE = 2
    MERGE = 3


class Partition(IntEnum):
    """The partitions that we speak of, by their numbers."""

    NODE = 0
    ADJACENCY = 1
    EDGE_PROPERTY = 2
    SCHEMA = 5


class _Edge(Struct, frozen=True):
    """The edge that a row is: its type, the eight bytes of the ids at its ends, and what tells it from others."""

    type: str
    source: bytes
    target: bytes
    discriminator: bytes


class Mapper:
    """Turns the changes of one shard into operations. `edges` names its edge tables as the wires name tables."""

    def __init__(self, shard: int, edges: Mapping[str, EdgeTable]) -> None:
        self._shard = shard.to_bytes(2, "big")
        self._edges = dict(edges)

    def operations(
        self, op: int, schema: TableSchema, key: bytes, before: bytes | None, after: bytes | None
    ) -> tuple[bytes, frozenset[str]]:
        """Return the operations of a change, as fields `ops` of a ChangeEvent, and the edge types that they touch."""
        if op == Op.SCHEMA:
            named = schema_key(schema.table.wire, schema.version)
            return _operation(_INSERT_SCHEMA, named, encode_schema(schema, after)), NO_TYPES
        if op == Op.TRUNCATE:
            return self._truncation(schema)
        shape = shape_of(schema)
        edge_table = self._edges.get(shape.wire) if self._edges else None
        if op == Op.UPDATE and before and after and lacks_cells(after, schema):
            after = completed(after, before)
        old, new = cells_of(before) if before else None, cells_of(after) if after else None
        removed = encode_row(old, shape) if old is not None else b""
        put = encode_row(new, shape) if new is not None else b""
        if edge_table is None:
            return self._node(shape, key, put, removed), NO_TYPES
        was = None if op == Op.INSERT else _edge(edge_table, schema, key, old or {})
        is_ = None if op == Op.DELETE else _edge(edge_table, schema, key, new or {})
        if op != Op.UPDATE or was == is_:
            found = is_ or was
            ops = self._node(shape, key, put, removed) if found is None else _edge_ops(found, op, put, removed)
        else:  # it moved, or became an edge, or is none any more
            gone = self._node(shape, key, b"", removed) if was is None else _edge_ops(was, Op.DELETE, b"", removed)
            came = self._node(shape, key, put, b"") if is_ is None else _edge_ops(is_, Op.INSERT, put, b"")
            ops = gone + came
        return ops, frozenset(edge.type for edge in (was, is_) if edge is not None)

    def _truncation(self, schema: TableSchema) -> tuple[bytes, frozenset[str]]:
        table = schema.table
        image = _encode_json({"ddl": table.truncate_statement})
        done = _operation(_INSERT_SCHEMA, schema_key(table.wire, schema.version), encode_schema(schema, image))
        edge_table = self._edges.get(table.wire)
        if edge_table is None:
            return done, NO_TYPES
        return done, EVERY_TYPE if edge_table.type_column else frozenset({edge_table.type})

    def _node(self, shape: RowLayout, key: bytes, put: bytes, removed: bytes) -> bytes:
        kind = _INSERT_NODE if put else _DELETE_NODE
        return _operation(kind, node_key(self._shard, shape.table, key), put, removed)


def _edge_ops(edge: _Edge, op: int, put: bytes, removed: bytes) -> bytes:
    """Return what is done to an edge: it is made, changed or removed."""
    type_ = edge.type.encode()
    properties = edge_property_key(type_, edge.source, edge.target, edge.discriminator)
    known = _operation(_INSERT_EDGE if put else _DELETE_EDGE, properties, put, removed)
    if op == Op.UPDATE:
        return known
    tag = _REMOVE if op == Op.DELETE else _ADD
    outgoing, incoming = outgoing_key(type_, edge.source), incoming_key(type_, edge.target)
    return b"".join(
        [
            _operation(_MERGE_ADJACENCY, outgoing, tag + edge.target),
            _operation(_MERGE_ADJACENCY, incoming, tag + edge.source),
            known,
        ]
    )


def _edge(table: EdgeTable, schema: TableSchema, key: bytes, cells: Mapping[str, Json]) -> _Edge | None:
    """Return the edge that a row is; None where it is none. What its image lacks is looked for in its key.

    Raises:
        SourceAbilityError: The source did not send what it is known by.
    """
    identifying = {table.source_column, table.target_column} | ({table.type_column} if table.type_column else set())
    if not identifying <= cells.keys():
        cells = {**cells_of(key_image(key, schema)), **cells}
        unsent = sorted(name for name in identifying if name not in cells and schema.column(name) is not None)
        if unsent:
            raise SourceAbilityError(
                schema.table.source,
                f"did not send {', '.join(unsent)} of a row of the edge table {schema.table.wire}, by which edges are "
                "known: have it send whole rows, before and after changes",
            )
    type_ = cells.get(table.type_column) if table.type_column else table.type
    source, target = cells.get(table.source_column), cells.get(table.target_column)
    if type_ is None or source is None or target is None:
        return None
    return _Edge(
        type_ if isinstance(type_, str) else _encode_json(type_).decode(),
        node_id(_encode_json([source])).to_bytes(8, "big"),
        node_id(_encode_json([target])).to_bytes(8, "big"),
        b"" if schema.key and identifying.issuperset(schema.key) else key,
    )


def _operation(kind: bytes, key: bytes, value: bytes, before: bytes = b"") -> bytes:
    """Return an operation of a kind (`_kind`)."""
    parts = [kind, varint(len(key)), key]
    if value:
        parts += _VALUE, varint(len(value)), value
    if before:
        parts += _BEFORE, varint(len(before)), before
    data = b"".join(parts)
    return b"%b%b%b" % (_OPS, varint(len(data)), data)


def _kind(kind: OpType, partition: Partition) -> bytes:
    """Return the fields of an operation that come before its key, and the tag of the key."""
    return number_field(1, kind) + number_field(2, partition) + _tag(3)


def _tag(field: int) -> bytes:
    return varint(field << 3 | 2)


_OPS, _VALUE, _BEFORE = _tag(OPS_FIELD), _tag(4), _tag(BEFORE_FIELD)
_INSERT_NODE = _kind(OpType.INSERT, Partition.NODE)
_DELETE_NODE = _kind(OpType.DELETE, Partition.NODE)
_MERGE_ADJACENCY = _kind(OpType.MERGE, Partition.ADJACENCY)
_INSERT_EDGE = _kind(OpType.INSERT, Partition.EDGE_PROPERTY)
_DELETE_EDGE = _kind(OpType.DELETE, Partition.EDGE_PROPERTY)
_INSERT_SCHEMA = _kind(OpType.INSERT, Partition.SCHEMA)


_HIGHEST = 1 << 63
_DIGITS_MAX = 19


def node_id(key: bytes) -> int:
    """Return the id of the row with a key, given as a JSON array."""
    number = _number(key)
    if number is not None:
        return number
    return int.from_bytes(hashlib.sha256(key).digest()[:8], "big") | _HIGHEST


def node_key(shard: bytes, table: bytes, key: bytes) -> bytes:
    """Return the key of a row. `shard` is its two bytes."""
    number = _number(key)
    if number is not None:
        return b"node:%b:%b:%b" % (shard, number.to_bytes(8, "big"), table)
    return b"node:%b:%b:%b\0%b" % (shard, node_id(key).to_bytes(8, "big"), table, key)


def outgoing_key(type_: bytes, source: bytes) -> bytes:
    """Return the key of the list of nodes to which edges of a type lead from a node, given by its eight bytes."""
    return b"adj:%b:out:%b" % (type_, source)


def incoming_key(type_: bytes, target: bytes) -> bytes:
    """Return the key of the list of nodes from which edges of a type lead to a node."""
    return b"adj:%b:in:%b" % (type_, target)


def edge_property_key(type_: bytes, source: bytes, target: bytes, discriminator: bytes) -> bytes:
    """Return the key of what is known about an edge; the discriminator tells edges between the same nodes apart."""
    key = b"edgeprop:%b:%b:%b" % (type_, source, target)
    return b"%b:%b" % (key, discriminator) if discriminator else key


def schema_key(table: str, version: int) -> bytes:
    """Return the key of a version of a table's schema."""
    return f"schema:table:{table}:{version}".encode()


def _number(key: bytes) -> int | None:
    """Return the one whole number from 0 to 2^63 - 1 that a key is; None for any other key."""
    digits = key[1:-1]
    if len(digits) > _DIGITS_MAX or not digits.isdigit():
        return None
    number = int(digits)
    return number if number < _HIGHEST else None
