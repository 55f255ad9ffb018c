"""Every consumer of values takes values of every kind, and loses none of them in silence."""

import base64
import json
from datetime import UTC, date, datetime
from decimal import Decimal

import msgspec
import pyarrow as pa
import pytest

from kind_samples import EWKB, SAMPLES, WKB
from tailrace.client.event import decode_event
from tailrace.envelope.base import UnfitError
from tailrace.envelope.envelopes import ENVELOPES
from tailrace.interface.coordinode.value import cells_of, encode_row, shape_of
from tailrace.interface.jimdb.row import value_of
from tailrace.interface.skeindb.literal import key_literals
from tailrace.interface.sochdb.raw_image import raw_of_image
from tailrace.message.target.opensearch import mapping
from tailrace.message.target.search import document_id
from tailrace.message.target.typesense import collection_fields
from tailrace.model.errors import InvalidPredicateError, InvalidRequestError
from tailrace.model.image import (
    decode_image,
    decode_key,
    encode_key,
    image_to_literals,
    image_to_plain,
    key_to_literals,
    key_to_plain,
    lacks_cells,
)
from tailrace.model.key import key_bytes, order_of
from tailrace.model.op import Op
from tailrace.model.subscription import Format
from tailrace.model.table import Column, Kind, TableName, TableSchema
from tailrace.model.value import Array, Text, from_literal
from tailrace.pipeline.sink.base import TableChanges
from tailrace.pipeline.sink.natural import changes_of_columns
from tailrace.pipeline.typed import MisfitError, decode_images, row_schema
from tailrace.sql.sqlite.affinity import STORED_KINDS
from tailrace.sql.sqlite.predicate import compile_where
from tailrace.sql.sqlite.query.argument import bind
from tailrace.subscription.cel.compile import compile_cel, compile_cel_value

each = pytest.mark.parametrize("sample", SAMPLES)


@each
def test_images_keep_it_and_show_it_as_a_literal_and_plainly(sample):
    assert decode_image(sample.image, sample.schema)["c"] == sample.value
    assert not lacks_cells(sample.image, sample.schema)
    assert json.loads(sample.image)["c"] == sample.natural
    assert json.loads(image_to_literals(sample.image, sample.schema))["c"] == sample.literal
    assert json.loads(image_to_plain(sample.image, sample.schema))["c"] == sample.plain


@each
def test_keys_keep_it_and_show_it_as_a_literal_and_plainly(sample):
    key = encode_key([sample.value], sample.keyed)
    assert decode_key(key, sample.keyed) == (sample.value,)
    assert json.loads(key_to_literals(key, sample.keyed)) == [sample.literal]
    assert json.loads(key_to_plain(key, sample.keyed)) == [sample.plain]
    assert key_bytes([sample.literal], sample.keyed) == key
    assert order_of(sample.value) == order_of(from_literal(sample.literal))


@each
def test_skeindb_writes_keys_of_it_a_column_at_once(sample):
    key = encode_key([sample.value], sample.keyed)
    literals, odd = key_literals(pa.array([key], pa.binary()), pa.array([0], pa.int32()), [sample.keyed])
    assert (odd is not None and odd[0].as_py()) or literals[0].as_py() == key_to_literals(key, sample.keyed)


COORDINODE = {
    "bool ": {"Bool": True},
    "interval interval": {"Interval": "1 year 2 mons -3 days +04:05:06.7"},
    "foreign money": {"Foreign": ["money", "$1,000.00"]},
    "geometry": {"Geometry": WKB},
    "array of two dimensions": {"Array": [[{"Int": 1}, None], [{"Int": 2}, {"Int": 1}]]},
    "array with lower bounds": {"Array": [{"Int": 1}, {"Int": 2}], "lower": [0]},
    "array of dates": {"Array": [{"Date": "2026-01-31"}, None]},
}


@each
def test_coordinode_has_a_tag_for_it(sample):
    _, cells = msgspec.msgpack.decode(encode_row(cells_of(sample.image), shape_of(sample.schema)))
    cell = cells["c"]
    assert cell == COORDINODE.get(sample.name, cell)
    if isinstance(sample.value, Text) and sample.column.kind is not Kind.FOREIGN:
        assert cell == {str(sample.column.kind).capitalize(): sample.value.text}


@each
def test_jimdb_writes_it_so_that_it_tells_its_type(sample):
    value = json.loads(value_of(sample.image, sample.schema))["c"]
    plain = not isinstance(sample.value, Decimal | bytes | Text | Array)
    assert value == (sample.natural if plain else sample.literal)


@each
def test_sochdb_shows_it_as_the_value_of_a_key(sample):
    columns = (Column("key", Kind.STR), msgspec.structs.replace(sample.column, name="value"), Column("expires_time_us"))
    schema = TableSchema(TableName("app", "kv"), 1, columns, ("key",))
    raw = raw_of_image(msgspec.json.encode({"key": "k", "value": sample.natural}), schema)
    match sample.value:
        case bytes() as data:
            assert raw == data
        case Text(_, text) | str(text):
            assert raw == text.encode()
        case Array():
            assert json.loads(raw) == sample.plain
        case other:
            assert raw == str(other).encode()


@each
def test_the_client_reads_it(sample):
    raw = msgspec.json.encode(
        {"seq": 1, "db": "a", "table": "t", "op": "insert", "pk": [], "after": {"c": sample.literal}, "commit_ts_ms": 5}
    )
    event = decode_event(raw, Format.OBJECTS_JSON, lambda offset: offset)
    assert event.after == {"c": sample.value}
    assert "c=" in str(event)


TYPED = {
    "dec": Decimal("1.10"),
    "date date": date(2026, 1, 31),
    "datetime datetime(6)": datetime(2026, 1, 31, 12, tzinfo=UTC).replace(tzinfo=None),
    "datetime timestamp with time zone": datetime(2026, 1, 31, 10, 0, 0, 500_000, tzinfo=UTC),
    "array of dates": [date(2026, 1, 31), None],
    "array of documents": ['{"a":[1,2]}'],
    "array of a foreign type, of any dimensions": '["a.b"]',
}


def typed(sample):
    wanted = row_schema(sample.schema)
    images, keys = pa.array([sample.image], pa.binary()), pa.array([b"[1]"], pa.binary())
    return pa.table(decode_images(images, keys, sample.schema, wanted).columns, schema=wanted)


@each
def test_typed_columns_hold_it_or_name_its_row(sample):
    if isinstance(sample.value, Array) and sample.value.lower:
        with pytest.raises(MisfitError):
            typed(sample)
        return
    (value,) = typed(sample)["c"].to_pylist()
    usual = sample.value.text if isinstance(sample.value, Text) else sample.value
    assert value == TYPED.get(sample.name, sample.plain if isinstance(usual, Array) else usual)


@each
def test_a_column_can_be_read_as_text(sample):
    wanted = row_schema(sample.schema, ["c"])
    images, keys = pa.array([sample.image], pa.binary()), pa.array([b"[1]"], pa.binary())
    (value,) = decode_images(images, keys, sample.schema, wanted, ["c"]).columns[1].to_pylist()
    assert (value if isinstance(sample.natural, str) else json.loads(value)) == sample.natural


@each
def test_typed_columns_become_changes_again(sample):
    if isinstance(sample.value, Array) and sample.value.lower:
        return
    rows = typed(sample)
    changes = pa.table(
        {
            "_change_type": ["insert"],
            "_offset": [7],
            "_commit_version": [3],
            "_commit_timestamp": pa.array([datetime(2026, 1, 1, tzinfo=UTC)], pa.timestamp("us", tz="UTC")),
            **{name: rows[name] for name in rows.column_names},
        }
    )
    (change,) = changes_of_columns(TableChanges(sample.schema, changes))
    back = decode_image(change.after, sample.schema)["c"]
    if sample.column.kind is Kind.DATETIME:  # in UTC, and with a zone where the column has one
        assert back.text.removesuffix("+00") in {"2026-01-31 12:00:00", "2026-01-31 10:00:00.5"}
    else:
        assert back == sample.value


CONNECT = {
    "enum stock": (
        {"type": "string", "name": "io.debezium.data.Enum", "parameters": {"allowed": "in stock,sold out"}},
        "in stock",
    ),
    "enum set('a','b','c')": (
        {"type": "string", "name": "io.debezium.data.EnumSet", "parameters": {"allowed": "a,b,c"}},
        "a,c",
    ),
    "bit bit(10)": (
        {"type": "bytes", "name": "io.debezium.data.Bits", "parameters": {"length": "10"}},
        base64.b64encode(0b0101000011.to_bytes(2, "little")).decode(),
    ),
    "bit bit varying": ({"type": "string"}, "0101"),
    "interval interval": ({"type": "string"}, "1 year 2 mons -3 days +04:05:06.7"),
    "foreign ltree": ({"type": "string", "name": "io.debezium.data.Ltree"}, "top.science"),
    "foreign tsvector": ({"type": "string", "name": "io.debezium.data.Tsvector"}, "'a':1 'b':2"),
    "foreign money": ({"type": "string"}, "$1,000.00"),
    "geometry": (
        {"type": "struct", "name": "io.debezium.data.geometry.Geometry"},
        {"wkb": base64.b64encode(WKB).decode(), "srid": None},
    ),
    "geometry with a reference system": (
        {"type": "struct", "name": "io.debezium.data.geometry.Geometry"},
        {"wkb": base64.b64encode(EWKB).decode(), "srid": 4326},
    ),
    "array of integers": ({"type": "array", "items": {"type": "int64", "optional": True}}, [1, None, 2]),
    "array of two dimensions": (
        {"type": "array", "items": {"type": "array", "optional": True, "items": {"type": "int64", "optional": True}}},
        [[1, None], [2, 1]],
    ),
    "array of a foreign type, of any dimensions": ({"type": "string", "name": "io.debezium.data.Json"}, '["a.b"]'),
}


@each
def test_debezium_with_schemas_has_a_type_for_it(sample):
    if isinstance(sample.value, Array) and sample.value.lower:
        with pytest.raises(UnfitError, match="column 'c'"):
            ENVELOPES["debezium-schema"].wrap(sample.insert, "1")
        return
    message = json.loads(ENVELOPES["debezium-schema"].wrap(sample.insert, "1").value)
    row = next(field for field in message["schema"]["fields"] if field["field"] == "after")
    field = next(one for one in row["fields"] if one["field"] == "c")
    schema, value = CONNECT.get(sample.name, ({}, message["payload"]["after"]["c"]))
    assert {name: field[name] for name in schema} == schema
    assert message["payload"]["after"]["c"] == value


@pytest.mark.parametrize("name", ["debezium", "maxwell", "cloudevents", "row"])
@each
def test_envelopes_have_its_plain_form(sample, name):
    text = ENVELOPES[name].wrap(sample.insert, "1").value.decode()
    assert msgspec.json.encode(sample.plain).decode() in text


@each
def test_search_engines_have_a_field_for_it(sample):
    assert mapping(sample.schema)["properties"]["c"]["type"]
    fields = {field["name"] for field in collection_fields(sample.schema)}
    unsearched = {Kind.JSON, Kind.BYTES, Kind.GEOMETRY, Kind.ARRAY}
    assert ("c" in fields) is (sample.column.kind not in unsearched)
    change = msgspec.structs.replace(sample.insert, schema=sample.keyed, key=encode_key([sample.value], sample.keyed))
    assert document_id(change)


@each
def test_cel_sees_it_as_text_a_number_bytes_or_a_list(sample):
    computed = compile_cel_value("row.c", sample.schema).of(Op.INSERT, sample.image)
    match sample.value:
        case Array():
            assert json.loads(computed.text) == sample.plain
        case Text(Kind.JSON):
            assert json.loads(computed.text) == sample.plain
        case Text(_, text):
            assert computed == text
        case Decimal():
            assert computed == str(sample.value)
        case value:
            assert computed == value
    assert compile_cel("row.c != null", sample.schema).select([Op.INSERT], [None], [sample.image]) == [True]


def test_cel_looks_into_arrays():
    (tags,) = [sample for sample in SAMPLES if sample.name == "array of integers"]
    assert compile_cel("2 in row.c && row.c[0] == 1", tags.schema).select([Op.INSERT], [None], [tags.image]) == [True]
    with pytest.raises(InvalidPredicateError, match="types"):
        compile_cel("row.c > 5", tags.schema)


@each
def test_sqlite_compares_what_it_can_store_and_refuses_the_rest_at_once(sample):
    if sample.column.kind in STORED_KINDS:
        compile_where("c IS NOT NULL", sample.schema)
        return
    with pytest.raises(InvalidPredicateError, match=f"column c is of kind {sample.column.kind}") as caught:
        compile_where("id = 1 AND c IS NOT NULL", sample.schema)
    assert caught.value.place == 11


@each
def test_an_argument_of_a_query_is_bound_as_text_or_refused(sample):
    if isinstance(sample.value, Array) or sample.value == 2**64 - 1:
        with pytest.raises(InvalidRequestError, match="argument 1"):
            bind([sample.value], 1)
        return
    (bound,) = bind([sample.value], 1)
    assert bound == (sample.value.text if isinstance(sample.value, Text) else sample.value) or bound == sample.plain
