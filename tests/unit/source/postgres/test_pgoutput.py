"""Messages of pgoutput: what real servers sent, every layout, and bytes that are none."""

import contextlib
import json
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.model.errors import SourceStateError
from tailrace.source.postgres import pgoutput
from tailrace.source.postgres.pgoutput import UNCHANGED, decode

GOLDEN = Path(__file__).parents[3] / "golden" / "pgoutput"
"""Sessions of PostgreSQL 15 and 18, recorded with streaming, two_phase and messages; 18 in parallel mode."""

EPOCH_US = 946_684_800_000_000
NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
NUMBERS = st.integers(0, 2**32 - 1)
PLACES = st.integers(0, 2**64 - 1)
TIMES = st.integers(-(2**62), 2**62)
CELLS = st.lists(st.none() | st.just(UNCHANGED) | st.binary(max_size=30), max_size=8)


def recorded():
    for path in sorted(GOLDEN.glob("*.jsonl")):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            yield pytest.param(json.loads(line), id=f"{path.stem}:{number}:{json.loads(line)['type']}")


@pytest.mark.parametrize("line", [*recorded()])
def test_what_a_server_sent_is_read_as_it_was_recorded(line):
    message = decode(bytes.fromhex(line["bytes"]), streamed=line["streamed"])
    assert type(message).__name__ == line["type"]
    assert repr(message) == line["message"]


def test_the_recordings_have_every_type_of_message():
    found = {line.values[0]["type"] for line in recorded()}
    classes = {name for name in pgoutput.__all__ if name[0].isupper()}
    assert classes - found == {"UNCHANGED", "Unchanged", "Cells", "Message", "Origin", "RelationColumn"}


def text(value):
    return value.encode() + b"\0"


def row(cells):
    parts = [struct.pack(">h", len(cells))]
    for cell in cells:
        if cell is None or cell is UNCHANGED:
            parts.append(b"n" if cell is None else b"u")
        else:
            parts.append(b"t" + struct.pack(">i", len(cell)) + cell)
    return b"".join(parts)


def prefix(xid):
    return struct.pack(">I", xid) if xid else b""


@given(PLACES, TIMES, NUMBERS)
def test_transactions_begin_and_commit(place, time_us, xid):
    begin = b"B" + struct.pack(">QqI", place, time_us, xid)
    assert decode(begin) == pgoutput.Begin(place, time_us + EPOCH_US, xid)
    commit = b"C" + struct.pack(">BQQq", 0, place, place, time_us)
    assert decode(commit) == pgoutput.Commit(place, place, time_us + EPOCH_US)


@given(NUMBERS, CELLS, st.none() | CELLS, st.booleans(), st.integers(0, 2**32 - 1))
def test_rows_come_with_their_cells(relation, new, old, is_key, xid):
    head = prefix(xid) + struct.pack(">I", relation)
    streamed = bool(xid)
    insert = decode(b"I" + head + b"N" + row(new), streamed=streamed)
    assert insert == pgoutput.Insert(relation, new, xid)
    before = b"" if old is None else (b"K" if is_key else b"O") + row(old)
    update = decode(b"U" + head + before + b"N" + row(new), streamed=streamed)
    assert update == pgoutput.Update(relation, old, is_key and old is not None, new, xid)
    if old is not None:
        delete = decode(b"D" + head + before, streamed=streamed)
        assert delete == pgoutput.Delete(relation, old, is_key, xid)


@given(NUMBERS, NAMES, NAMES, st.sampled_from("dnfi"), st.lists(st.tuples(NAMES, NUMBERS, st.booleans()), max_size=5))
def test_relations_and_types_have_their_names(oid, namespace, name, identity, columns):
    body = [bytes([flagged]) + text(name) + struct.pack(">Ii", oid, -1) for name, oid, flagged in columns]
    data = b"R" + struct.pack(">I", oid) + text(namespace) + text(name) + identity.encode()
    relation = decode(data + struct.pack(">h", len(columns)) + b"".join(body))
    assert relation == pgoutput.Relation(
        oid,
        namespace or "pg_catalog",
        name,
        identity,
        tuple(pgoutput.RelationColumn(column, type_oid, -1, flagged) for column, type_oid, flagged in columns),
    )
    type_ = decode(b"Y" + struct.pack(">I", oid) + text(namespace) + text(name))
    assert type_ == pgoutput.TypeName(oid, namespace or "pg_catalog", name)


@given(st.lists(NUMBERS, max_size=5), st.booleans(), st.booleans())
def test_truncations_name_their_tables(oids, cascade, restart):
    data = b"T" + struct.pack(">iB", len(oids), cascade + 2 * restart) + struct.pack(f">{len(oids)}I", *oids)
    assert decode(data) == pgoutput.Truncate(tuple(oids), cascade, restart)


def test_an_origin_is_read_and_an_abort_with_and_without_the_fields_of_parallel_streaming():
    assert decode(b"O" + struct.pack(">Q", 5) + b"other\0") == pgoutput.Origin(5, "other")
    assert decode(b"A" + struct.pack(">II", 7, 8)) == pgoutput.StreamAbort(7, 8)
    assert decode(b"A" + struct.pack(">IIQq", 7, 8, 9, 10)) == pgoutput.StreamAbort(7, 8)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"?",
        b"B",
        b"I" + struct.pack(">I", 1) + b"X",
        b"I" + struct.pack(">I", 1) + b"N" + struct.pack(">h", 1) + b"t" + struct.pack(">i", -1),
        b"I" + struct.pack(">I", 1) + b"N" + struct.pack(">h", 1) + b"t" + struct.pack(">i", 9) + b"short",
        b"I" + struct.pack(">I", 1) + b"N" + struct.pack(">h", 1) + b"b" + struct.pack(">i", 1) + b"1",
        b"I" + struct.pack(">I", 1) + b"N" + struct.pack(">h", -1),
        b"D" + struct.pack(">I", 1) + b"N" + row([]),
        b"T" + struct.pack(">iB", 2**31 - 1, 0),
        b"R" + struct.pack(">I", 1) + b"no end",
        b"Y" + struct.pack(">I", 1) + b"\xff\0a\0",
        b"E more",
    ],
)
def test_bytes_that_are_no_message_are_a_typed_error(data):
    with pytest.raises(SourceStateError, match="no pgoutput message"):
        decode(data)


@given(st.binary(max_size=60), st.booleans())
def test_any_bytes_are_a_message_or_a_typed_error(data, streamed):
    with contextlib.suppress(SourceStateError):
        decode(data, streamed=streamed)


@given(st.sampled_from([line.values[0] for line in recorded()]), st.data())
def test_a_message_that_was_cut_is_a_typed_error(line, data):
    whole = bytes.fromhex(line["bytes"])
    cut = data.draw(st.integers(0, len(whole) - 1))
    if line["type"] == "StreamAbort" and cut == 9:
        return  # what is left is an abort without the fields of parallel streaming
    with pytest.raises(SourceStateError):
        decode(whole[:cut], streamed=line["streamed"])
