"""Facts about events as bytes."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feeding import TIME_US, chunk_of, schema_of
from strategies import VALUES, table_schemas
from tailrace.delivery import join
from tailrace.delivery.view import View
from tailrace.interface.skeindb import present
from tailrace.interface.skeindb.present import ARRAY, LINES, SSE, WS, encode
from tailrace.model.commit import Draft
from tailrace.model.image import (
    encode_image,
    encode_key,
    image_to_literals,
    image_to_plain,
    key_to_literals,
    key_to_plain,
)
from tailrace.model.op import Op
from tailrace.model.subscription import Format, Include
from tailrace.model.table import Column, Kind
from tailrace.model.value import Text

GOLDEN = Path(__file__).parents[3] / "golden" / "http"
VIEWS = [
    View(wire, format_, Include(before, after))
    for wire in (SSE, WS, ARRAY, LINES)
    for format_ in Format
    for before in (False, True)
    for after in (False, True)
]


@st.composite
def chunks(draw):
    """Draw a chunk of changes of up to three tables, with all kinds of values."""
    schemas = draw(st.lists(table_schemas(), min_size=1, max_size=3))
    draft = Draft("p", draw(st.integers(0, 2**50)))
    for _ in range(draw(st.integers(1, 24))):
        number = draw(st.integers(1, len(schemas)))
        schema = schemas[number - 1]
        row = {column.name: draw(VALUES) for column in schema.columns if draw(st.booleans())}
        key = tuple(draw(VALUES) for _ in schema.key_columns)
        image = encode_image(row, schema)
        draft.add(
            draw(st.sampled_from(list(Op))),
            number,
            encode_key(key, schema),
            before=draw(st.sampled_from([None, image])),
            after=draw(st.sampled_from([None, image])),
        )
    return chunk_of(schemas, draft, first=draw(st.integers(1, 2**40)))


@settings(deadline=None, max_examples=60)
@given(chunks(), st.sampled_from(VIEWS), st.data())
def test_column_by_column_and_row_by_row_give_equal_bytes(chunk, view, data):
    picked = sorted(data.draw(st.sets(st.integers(0, len(chunk) - 1), min_size=1)))
    for rows in (range(len(chunk)), range(picked[0], picked[-1] + 1), picked):
        few = present._encode_few(chunk, rows, view)
        assert encode(chunk, rows, view).events() == few
        for helper in {None, join.compiled}:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(join, "compiled", helper)
                assert present._encode_many(chunk, rows, view).events() == few


@settings(deadline=None, max_examples=60)
@given(chunks(), st.sampled_from(list(Format)), st.booleans(), st.booleans())
def test_an_event_says_what_the_change_says(chunk, format_, before, after):
    view = View(LINES, format_, Include(before, after))
    key_form, image_form = {
        Format.OBJECTS_JSON: (key_to_literals, image_to_literals),
        Format.PLAIN_JSON: (key_to_plain, image_to_plain),
    }[format_]
    for change, line in zip(chunk.changes(), encode(chunk, range(len(chunk)), view).events(), strict=True):
        wanted = {
            "seq": change.offset,
            "db": change.schema.table.source,
            "table": change.schema.table.wire,
            "op": change.op.word,
            "pk": json.loads(key_form(change.key, change.schema)),
        }
        if before and change.before is not None:
            wanted["before"] = json.loads(image_form(change.before, change.schema))
        if after and change.after is not None:
            wanted["after"] = json.loads(image_form(change.after, change.schema))
        wanted |= {"commit_ts_ms": change.commit_time_us // 1000, "lsn": change.offset}
        found = json.loads(line)
        assert found == wanted
        assert list(found) == list(wanted)


@settings(deadline=None, max_examples=60)
@given(chunks(), st.sampled_from(list(Format)))
def test_a_server_sent_event_is_three_lines_whatever_the_values(chunk, format_):
    for offset, event in enumerate(
        encode(chunk, range(len(chunk)), View(SSE, format_, Include(True, True))).events(), start=chunk.first
    ):
        identity, op, data, *rest = event.split(b"\n")
        assert identity == b"id: %d" % offset
        assert op.removeprefix(b"event: ").decode() == json.loads(data.removeprefix(b"data: "))["op"]
        assert rest == [b"", b""]


def golden_chunk():
    users = schema_of("users")
    things = schema_of(
        'th"ing',
        space="other",
        columns=(
            Column("a", Kind.U64),
            Column("b", Kind.BYTES),
            Column("c", Kind.JSON),
            Column("d", Kind.DATETIME),
            Column("e", Kind.F64),
        ),
        key=("a", "b"),
    )
    keyless = schema_of("keyless", key=())
    draft = Draft("p", TIME_US)
    draft.add(Op.INSERT, 1, b"[1]", after=b'{"id":1,"name":"Ada"}')
    draft.add(Op.UPDATE, 1, b"[1]", before=b'{"id":1,"name":"Ada"}', after=b'{"id":1,"name":"Gr\xc3\xa4ce \\"H\\"\\n"}')
    draft.add(Op.DELETE, 1, b'["text in a number column"]', before=b'{"id":1}')
    row = {
        "a": 2**64 - 1,
        "b": b"\x00\xff",
        "c": Text(Kind.JSON, '{"k":[1]}'),
        "d": Text(Kind.DATETIME, "0000-00-00"),
        "e": float("nan"),
    }
    draft.add(Op.INSERT, 2, encode_key((2**64 - 1, b"\x00\xff"), things), after=encode_image(row, things))
    draft.add(Op.INSERT, 3, b"[7]", after=b'{"id":null,"name":"x"}')
    return chunk_of([users, things, keyless], draft, first=41)


@pytest.mark.parametrize("format_", list(Format))
@pytest.mark.parametrize("wire", [SSE, WS, ARRAY, LINES])
def test_events_are_those_of_the_golden_files(wire, format_):
    chunk = golden_chunk()
    view = View(wire, format_, Include(before=True, after=True))
    found = b"".join(encode(chunk, range(len(chunk)), view).events())
    path = GOLDEN / f"{format_}.{wire.name}"
    if os.environ.get("TAILRACE_GOLDEN") == "write":
        path.write_bytes(found)
    assert found == path.read_bytes()


def test_the_contracts_example_is_met_to_the_letter():
    schema = schema_of("users", columns=(Column("id", Kind.U64), Column("name", Kind.STR)))
    draft = Draft("p", 1_790_000_000_000_000)
    draft.add(Op.UPDATE, 1, b"[1]", before=b'{"name":"A"}', after=b'{"name":"B"}')
    chunk = chunk_of([schema], draft, first=9)
    (event,) = encode(chunk, range(1), View(ARRAY, Format.OBJECTS_JSON, Include(True, True))).events()
    assert event == (
        b'{"seq":9,"db":"app","table":"users","op":"update","pk":[{"t":"u64","v":1}],'
        b'"before":{"name":{"t":"str","v":"A"}},"after":{"name":{"t":"str","v":"B"}},'
        b'"commit_ts_ms":1790000000000,"lsn":9},'
    )
