"""Change streams read back: what a consumer makes of the keys and values of CoordiNode."""

import hashlib
import json

import msgspec


def node(key):
    """Return shard, id, table and key of a node key; the key of a row with a small whole number is that number."""
    assert key.startswith(b"node:")
    shard, number = int.from_bytes(key[5:7], "big"), int.from_bytes(key[8:16], "big")
    assert key[7:8] == key[16:17] == b":"
    table, other, text = key[17:].partition(b"\0")
    row = json.loads(text) if other else [number]
    if other:
        assert number == int.from_bytes(hashlib.sha256(text).digest()[:8], "big") | 1 << 63
    return shard, number, table.decode(), row


def adjacency(key):
    """Return type, direction and id of an adjacency key, read from its end: the type may contain anything."""
    assert key.startswith(b"adj:")
    head, number = key[4:-8], int.from_bytes(key[-8:], "big")
    for direction in ("out", "in"):
        mark = f":{direction}:".encode()
        if head.endswith(mark):
            return head[: -len(mark)].decode(), direction, number
    raise AssertionError(key)


def edge_property(key, type_):
    """Return the ids at both ends and the key of the row, of an edge-property key whose type is known."""
    head = f"edgeprop:{type_}:".encode()
    assert key.startswith(head)
    rest = key[len(head) :]
    assert rest[8:9] == b":"
    row = json.loads(rest[18:]) if rest[17:18] == b":" else None
    return int.from_bytes(rest[:8], "big"), int.from_bytes(rest[9:17], "big"), row


def row(value):
    """Return table and cells of a value; None for none."""
    if not value:
        return None
    (table,), fields = msgspec.msgpack.decode(value)
    return table, {name: None if cell is None else next(iter(cell.items())) for name, cell in fields.items()}
