"""Facts about events of SochDB as bytes."""

import json
import os
from pathlib import Path

import pytest
from google.protobuf import text_format
from hypothesis import given, settings
from hypothesis import strategies as st

from feeding import TIME_US, chunk_of, schema_of
from strategies import VALUES, table_schemas
from tailrace.delivery.grpc.proto.sochdb_pb2 import SubscribeEvent, WatchKeyEvent
from tailrace.delivery.view import View
from tailrace.interface.sochdb import event as sochdb_event
from tailrace.interface.sochdb.event import SOCHDB, SOCHDB_KEY, encode_events
from tailrace.interface.sochdb.raw_image import raw_of_image
from tailrace.model.commit import Draft
from tailrace.model.image import encode_image, encode_key
from tailrace.model.op import ROWLESS, Op
from tailrace.model.raw_key import raw_of_key
from tailrace.model.subscription import Format, Include
from tailrace.model.table import Column, Kind

GOLDEN = Path(__file__).parents[3] / "golden" / "grpc"
KV = schema_of(
    "kv",
    columns=(Column("key", Kind.BYTES), Column("value", Kind.BYTES), Column("expires_time_us", Kind.I64)),
    key=("key",),
)
ROW_OPS = [Op.INSERT, Op.UPDATE, Op.DELETE]
VIEWS = [
    View(wire, Format.OBJECTS_JSON, Include(before, after))
    for wire in (SOCHDB, SOCHDB_KEY)
    for before in (False, True)
    for after in (False, True)
]


@st.composite
def chunks(draw, ops):
    """Draw a chunk of changes of up to three tables and of keys and values, with all kinds of values."""
    schemas = [*draw(st.lists(table_schemas(), min_size=1, max_size=3)), KV]
    draft = Draft("p", draw(st.one_of(st.just(0), st.integers(0, 2**50))))
    for _ in range(draw(st.integers(1, 24))):
        number = draw(st.integers(1, len(schemas)))
        schema = schemas[number - 1]
        key = tuple(draw(VALUES) for _ in schema.key_columns)
        image = encode_image({column.name: draw(VALUES) for column in schema.columns if draw(st.booleans())}, schema)
        before, after = (draw(st.sampled_from([None, image])) for _ in range(2))
        op = draw(st.sampled_from(ops))
        if op is Op.SCHEMA:
            draft.add(op, number, b"[]", after=json.dumps({"ddl": draw(st.text())}).encode())
        elif op is Op.TRUNCATE:
            draft.truncate(number)
        else:
            draft.add(op, number, encode_key(key, schema), before=before, after=after)
    return chunk_of(schemas, draft, first=draw(st.one_of(st.integers(1, 2**15), st.integers(1, 2**40))))


@settings(deadline=None, max_examples=40)
@given(chunks(ROW_OPS), st.sampled_from(VIEWS))
def test_column_by_column_and_row_by_row_give_equal_bytes(chunk, view):
    many = sochdb_event._encode_many(chunk, range(len(chunk)), view).events()
    assert many == sochdb_event._encode_few(chunk, range(len(chunk)), view)


@settings(deadline=None, max_examples=40)
@given(chunks(list(Op)), st.booleans(), st.booleans(), st.data())
def test_the_published_messages_read_back_the_change(chunk, before, after, data):
    rows = sorted(data.draw(st.sets(st.integers(0, len(chunk) - 1), min_size=1)))
    view = View(SOCHDB, Format.OBJECTS_JSON, Include(before, after))
    changes = list(chunk.changes())
    found = messages(b"".join(encode_events(chunk, rows, view).events()), SubscribeEvent)
    for event, change in zip(found, [changes[row] for row in rows], strict=True):
        is_row = change.op not in ROWLESS
        assert (event.sequence, event.timestamp_us) == (change.offset, change.commit_time_us)
        assert (event.txn_id, event.table) == (change.index, change.schema.table.wire)
        assert event.operation == (Op.SCHEMA if change.op is Op.TRUNCATE else change.op)
        assert event.key == raw_of_key(change.key, change.schema)
        assert event.after_value == image(change.after, change, wanted=after and is_row)
        assert event.before_value == image(change.before, change, wanted=before and is_row)
        if change.op is Op.TRUNCATE:
            assert event.ddl == change.schema.table.truncate_statement
        else:
            assert event.ddl == ("" if is_row else json.loads(change.after)["ddl"])
        assert event.SerializeToString() in b"".join(encode_events(chunk, rows, view).events())


@settings(deadline=None, max_examples=40)
@given(chunks(ROW_OPS))
def test_events_of_one_key_say_the_same_in_their_own_message(chunk):
    view = View(SOCHDB_KEY, Format.OBJECTS_JSON, Include(before=True, after=True))
    found = messages(b"".join(encode_events(chunk, range(len(chunk)), view).events()), WatchKeyEvent)
    for event, change in zip(found, chunk.changes(), strict=True):
        assert (event.sequence, event.timestamp_us) == (change.offset, change.commit_time_us)
        assert event.operation == change.op
        assert event.after_value == image(change.after, change, wanted=True)
        assert event.before_value == image(change.before, change, wanted=True)


def test_a_truncation_is_a_schema_change_for_subscribers_and_a_deletion_for_those_who_watch_a_key():
    draft = Draft("p", TIME_US)
    for number in range(100):
        draft.add(Op.INSERT, 1, b"[%d]" % number, after=b'{"id":%d}' % number)
    draft.truncate(1)
    chunk = chunk_of([schema_of("users")], draft)
    include = Include(before=True, after=True)
    wires = ((SOCHDB, SubscribeEvent), (SOCHDB_KEY, WatchKeyEvent))
    views = ((View(wire, Format.OBJECTS_JSON, include), kind) for wire, kind in wires)
    told, watched = (
        list(messages(b"".join(encode_events(chunk, range(101), view).events()), kind))[-1] for view, kind in views
    )
    assert (told.sequence, told.operation, told.table) == (101, Op.SCHEMA, "users")
    assert (told.ddl, told.key, told.before_value, told.after_value) == ('TRUNCATE TABLE "users"', b"", b"", b"")
    assert (watched.sequence, watched.operation) == (101, Op.DELETE)
    assert (watched.before_value, watched.after_value) == (b"", b"")


def test_a_long_chunk_with_a_schema_change_in_it_is_whole():
    draft = Draft("p", TIME_US)
    for number in range(100):
        draft.add(Op.INSERT, 1, b"[%d]" % number, after=b'{"id":%d}' % number)
    draft.add(Op.SCHEMA, 1, b"[]", after=b'{"ddl":"ALTER TABLE users ADD COLUMN age"}')
    chunk = chunk_of([schema_of("users")], draft)
    view = View(SOCHDB, Format.OBJECTS_JSON, Include(before=True, after=True))
    found = list(messages(b"".join(encode_events(chunk, range(101), view).events()), SubscribeEvent))
    assert [event.sequence for event in found] == list(range(1, 102))
    assert (found[-1].ddl, found[-1].key, found[-1].after_value) == ("ALTER TABLE users ADD COLUMN age", b"", b"")


def test_images_are_cut_to_the_columns_that_are_wanted():
    draft = Draft("p", TIME_US)
    for _ in range(50):
        draft.add(Op.INSERT, 1, b"[1]", after=b'{"id":1,"name":"Ada"}')
    chunk = chunk_of([schema_of("users")], draft)
    view = View(SOCHDB, Format.OBJECTS_JSON, Include(after=True), columns=("name",))
    for rows in (range(50), range(1)):
        events = messages(b"".join(encode_events(chunk, rows, view).events()), SubscribeEvent)
        assert {event.after_value for event in events} == {b'{"name":"Ada"}'}


def golden_chunk():
    users = schema_of("users")
    names = schema_of("names", space="other", columns=(Column("name", Kind.STR), Column("n", Kind.F64)), key=("name",))
    draft = Draft("p", TIME_US)
    draft.add(Op.INSERT, 1, b"[1]", after=b'{"id":1,"name":"Ada"}')
    draft.add(Op.UPDATE, 1, b"[1]", before=b'{"id":1,"name":"Ada"}', after=b'{"id":1,"name":"Gr\xc3\xa4ce"}')
    draft.add(Op.DELETE, 1, b"[1]", before=b'{"id":1,"name":"Gr\xc3\xa4ce"}')
    draft.add(Op.INSERT, 2, b'["a\\"b"]', after=b'{"name":"a\\"b","n":{"t":"f64","v":"NaN"}}')
    draft.add(Op.SCHEMA, 1, b"[]", after=b'{"ddl":"ALTER TABLE users ADD COLUMN age"}')
    kv = {"key": b"\x00k", "value": b"\xffv", "expires_time_us": None}
    draft.add(Op.INSERT, 3, encode_key([b"\x00k"], KV), after=encode_image(kv, KV))
    return chunk_of([users, names, KV], draft, first=41)


@pytest.mark.parametrize(("wire", "message"), [(SOCHDB, SubscribeEvent), (SOCHDB_KEY, WatchKeyEvent)])
def test_events_are_those_of_the_golden_files(wire, message):
    chunk = golden_chunk()
    view = View(wire, Format.OBJECTS_JSON, Include(before=True, after=True))
    found = b"".join(encode_events(chunk, range(len(chunk)), view).events())
    shown = "".join(f"{text_format.MessageToString(event)}\n" for event in messages(found, message))
    paths = (GOLDEN / f"{wire.name}.bin", GOLDEN / f"{wire.name}.txt")
    if os.environ.get("TAILRACE_GOLDEN") == "write":
        paths[0].write_bytes(found)
        paths[1].write_text(shown)
    assert (found, shown) == (paths[0].read_bytes(), paths[1].read_text())


def messages(data, message):
    """Yield the messages of bytes as they go over a gRPC stream."""
    while data:
        length = int.from_bytes(data[1:5], "big")
        assert data[0] == 0
        yield message.FromString(data[5 : 5 + length])
        data = data[5 + length :]


def image(stored, change, *, wanted):
    return raw_of_image(stored, change.schema) if wanted and stored is not None else b""
