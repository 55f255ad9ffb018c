r"""Keys of operations. Pure. `BE8` is eight bytes, big-endian; numbers are those of nodes.

    partition 0   node:<BE2 shard>:<BE8 id>:<table>            a row whose key is one whole number from 0 to 2^63 - 1
                  node:<BE2 shard>:<BE8 id>:<table>\\0<key>     any other row; `key` is the JSON array of its key
    partition 1   adj:<TYPE>:out:<BE8 source id>, adj:<TYPE>:in:<BE8 target id>
    partition 2   edgeprop:<TYPE>:<BE8 source id>:<BE8 target id>[:<key>]
    partition 5   schema:table:<table>:<version>

The id of a row whose key is not such a number is 2^63 and more: the first eight bytes of the SHA-256 of the JSON array,
with the highest bit set. So a row and the end of an edge that refers to it by the same value have the same id.
"""

import hashlib

__all__ = ["edge_property_key", "incoming_key", "node_id", "node_key", "outgoing_key", "schema_key"]

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
