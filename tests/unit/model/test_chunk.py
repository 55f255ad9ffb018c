"""Facts about chunks."""

import pyarrow as pa

from tailrace.model.chunk import ENVELOPE, Change, Chunk
from tailrace.model.op import Op
from tailrace.model.table import Column, TableName, TableSchema

SCHEMA = TableSchema(TableName("app", "t"), 1, (Column("a"),))


def chunk() -> Chunk:
    rows = [
        {"offset": 7, "index": 3, "commit_time_us": 5, "txid": 0, "op": 1, "schema": 1, "key": b"[1]", "after": b"{}"},
        {"offset": 8, "index": 3, "commit_time_us": 5, "txid": 0, "op": 3, "schema": 1, "key": b"[1]", "before": b"{}"},
    ]
    return Chunk(pa.RecordBatch.from_pylist(rows, schema=ENVELOPE), {1: SCHEMA})


def test_a_chunk_knows_its_interval():
    assert (chunk().first, chunk().last, len(chunk())) == (7, 8, 2)
    assert chunk().size_bytes > 0


def test_a_chunk_yields_its_changes():
    assert list(chunk().changes()) == [
        Change(7, 3, 5, 0, Op.INSERT, SCHEMA, b"[1]", None, b"{}"),
        Change(8, 3, 5, 0, Op.DELETE, SCHEMA, b"[1]", b"{}", None),
    ]


def test_a_memo_is_computed_once_per_key():
    calls = []
    shared = chunk()
    for key in ("a", "a", "b"):
        assert shared.memo(key, lambda c: calls.append(c) or len(calls)) in (1, 2)
    assert calls == [shared, shared]


def test_a_chunk_keeps_only_so_many_results():
    shared = chunk()
    for key in range(1000):
        assert shared.memo(key, lambda _, key=key: key) == key
        assert len(shared._memo) <= 64
