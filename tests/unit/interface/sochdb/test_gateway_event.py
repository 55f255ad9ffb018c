"""Facts about events of the WebSocket gateway as bytes."""

import base64
import json
import os
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from feeding import TIME_US, chunk_of, schema_of
from strategies import VALUES, table_schemas
from tailrace.delivery.grpc.proto.sochdb_pb2 import SubscribeEvent
from tailrace.delivery.view import View
from tailrace.interface.sochdb.event import SOCHDB, encode_events
from tailrace.interface.sochdb.gateway_event import GATEWAY, encode_gateway_events
from tailrace.model.commit import Draft
from tailrace.model.image import encode_image, encode_key
from tailrace.model.op import Op
from tailrace.model.subscription import Format, Include
from tailrace.model.table import Column, Kind

GOLDEN = Path(__file__).parents[3] / "golden" / "http" / "gateway.txt"
KV = schema_of(
    "kv",
    columns=(Column("key", Kind.BYTES), Column("value", Kind.BYTES), Column("expires_time_us", Kind.I64)),
    key=("key",),
)
BOTH = Include(before=True, after=True)
VIEW = View(GATEWAY, Format.PLAIN_JSON, BOTH)
NAMES = {1: "Insert", 2: "Update", 3: "Delete", 4: "SchemaChange"}


@st.composite
def chunks(draw):
    """Draw a chunk of changes of some tables and of keys and values, with all kinds of values."""
    schemas = [*draw(st.lists(table_schemas(), min_size=1, max_size=2)), KV]
    draft = Draft("p", draw(st.integers(0, 2**50)))
    for _ in range(draw(st.integers(1, 12))):
        number = draw(st.integers(1, len(schemas)))
        schema = schemas[number - 1]
        op = draw(st.sampled_from(list(Op)))
        if op is Op.SCHEMA:
            draft.add(op, number, b"[]", after=json.dumps({"ddl": draw(st.text(min_size=1))}).encode())
            continue
        if op is Op.TRUNCATE:
            draft.truncate(number)
            continue
        key = encode_key(tuple(draw(VALUES) for _ in schema.key_columns), schema)
        image = encode_image({column.name: draw(VALUES) for column in schema.columns}, schema)
        before, after = (draw(st.sampled_from([None, image])) for _ in range(2))
        draft.add(op, number, key, before=before, after=after)
    return chunk_of(schemas, draft, first=draw(st.integers(1, 2**40)))


@settings(deadline=None, max_examples=40)
@given(chunks(), st.data())
def test_an_event_says_what_the_grpc_event_says(chunk, data):
    rows = sorted(data.draw(st.sets(st.integers(0, len(chunk) - 1), min_size=1)))
    grpc_view = View(SOCHDB, Format.PLAIN_JSON, BOTH)
    messages = [SubscribeEvent.FromString(event[5:]) for event in encode_events(chunk, rows, grpc_view).events()]
    events = encode_gateway_events(chunk, rows, VIEW).events()
    assert all(event.endswith(b"}\n") and event.count(b"\n") == 1 for event in events)
    for event, message in zip(map(json.loads, events), messages, strict=True):
        assert (event["sequence"], event["timestamp_us"]) == (message.sequence, message.timestamp_us)
        assert (event["txn_id"], event["table"]) == (message.txn_id, message.table)
        assert event["operation"] == NAMES[message.operation]
        assert (event["ddl"] or "") == message.ddl
        for member in ("key", "before_value", "after_value"):
            assert base64.b64decode(event[member] or "") == getattr(message, member)


def test_an_empty_value_is_told_from_none():
    draft = Draft("p", TIME_US)
    entry = {"key": b"k", "value": b"", "expires_time_us": None}
    draft.add(Op.INSERT, 1, encode_key([b"k"], KV), after=encode_image(entry, KV))
    (event,) = encode_gateway_events(chunk_of([KV], draft), range(1), VIEW).events()
    assert json.loads(event)["after_value"] == ""
    assert json.loads(event)["before_value"] is None


def test_events_are_those_of_the_golden_file():
    draft = Draft("p", TIME_US)
    draft.add(Op.INSERT, 1, b"[1]", after=b'{"id":1,"name":"Ada"}')
    draft.add(Op.UPDATE, 1, b"[1]", before=b'{"id":1,"name":"Ada"}', after=b'{"id":1,"name":"Gr\xc3\xa4ce"}')
    draft.add(Op.DELETE, 1, b"[1]", before=b'{"id":1,"name":"Gr\xc3\xa4ce"}')
    draft.add(Op.SCHEMA, 1, b"[]", after=b'{"ddl":"ALTER TABLE users ADD COLUMN \\"age\\""}')
    entry = {"key": b"\x00k", "value": b"\xffv", "expires_time_us": None}
    draft.add(Op.INSERT, 2, encode_key([b"\x00k"], KV), after=encode_image(entry, KV))
    found = b"".join(
        encode_gateway_events(chunk_of([schema_of("users"), KV], draft, first=41), range(5), VIEW).events()
    )
    if os.environ.get("TAILRACE_GOLDEN") == "write":
        GOLDEN.write_bytes(found)
    assert found == GOLDEN.read_bytes()
