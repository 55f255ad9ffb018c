"""Each envelope tells a change as its readers expect it, by their published parsers where there are any."""

import base64
import json
import math
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from cloudevents.core.bindings import http, kafka
from hypothesis import given
from hypothesis import strategies as st

from changing import TIME_US, delete, insert, truncate, update
from tailrace import __version__
from tailrace.envelope.base import UnfitError
from tailrace.envelope.envelopes import ENVELOPES, envelope_of
from tailrace.model.chunk import Change
from tailrace.model.errors import ConfigError
from tailrace.model.image import lacks_cells
from tailrace.model.op import Op
from tailrace.model.table import Column, Kind, TableName, TableSchema
from tailrace.model.value import Text

ROW = {
    "id": 1,
    "customer": "Ann Ægir",
    "total": Decimal("12.50"),
    "paid": True,
    "at": Text(Kind.DATETIME, "2025-11-16 08:00:00"),
    "photo": b"\x00\xff",
    "more": Text(Kind.JSON, '{"a":[1,2]}'),
}
PLAIN = {
    "id": 1,
    "customer": "Ann Ægir",
    "total": "12.50",
    "paid": True,
    "at": "2025-11-16 08:00:00",
    "photo": "AP8=",
    "more": {"a": [1, 2]},
}
LATER = {**ROW, "customer": "Bob", "paid": None}
LATER_PLAIN = {**PLAIN, "customer": "Bob", "paid": None}
ID = "shop/7"


def wrapped(name, change, **named):
    made = envelope_of(name).wrap(change, ID, **named)
    return None if made.value is None else json.loads(made.value), json.loads(made.key)


def test_our_own_envelope_is_the_event_of_the_http_interface_with_commit_and_schema():
    value, key = wrapped("tailrace", update(ROW, LATER))
    assert list(value) == [
        "seq", "db", "table", "op", "pk", "before", "after", "commit_ts_ms", "lsn", "index", "schema",
    ]  # fmt: skip
    assert value == {
        "seq": 7,
        "db": "shop",
        "table": "orders",
        "op": "update",
        "pk": [1],
        "before": PLAIN,
        "after": LATER_PLAIN,
        "commit_ts_ms": TIME_US // 1000,
        "lsn": 7,
        "index": 4,
        "schema": 3,
    }
    assert key == [1]


@pytest.mark.parametrize(
    ("change", "snapshot", "op", "images"),
    [
        (insert(ROW), False, "insert", {"after"}),
        (insert(ROW), True, "read", {"after"}),
        (update(ROW, LATER), False, "update", {"before", "after"}),
        (delete(ROW), False, "delete", {"before"}),
    ],
)
def test_our_own_envelope_has_the_images_that_there_are(change, snapshot, op, images):
    value, _ = wrapped("tailrace", change, snapshot=snapshot)
    assert value["op"] == op
    assert {"before", "after"} & value.keys() == images


@pytest.mark.parametrize(
    ("change", "snapshot", "op", "before", "after"),
    [
        (insert(ROW), False, "c", None, PLAIN),
        (insert(ROW), True, "r", None, PLAIN),
        (update(ROW, LATER), False, "u", PLAIN, LATER_PLAIN),
        (delete(ROW), False, "d", PLAIN, None),
    ],
)
def test_debezium_without_schema_is_the_payload_alone(change, snapshot, op, before, after):
    now_us = TIME_US + 5_000_001
    value, key = wrapped("debezium", change, snapshot=snapshot, now_us=now_us)
    assert (value["op"], value["before"], value["after"]) == (op, before, after)
    commit = {"id": "4", "total_order": 7, "data_collection_order": 7}
    assert value["transaction"] == (None if snapshot else commit)
    assert (value["ts_ms"], value["ts_us"], value["ts_ns"]) == (now_us // 1000, now_us, now_us * 1000)
    assert value["source"] == {
        "version": __version__,
        "connector": "tailrace",
        "name": "shop",
        "ts_ms": TIME_US // 1000,
        "snapshot": "true" if snapshot else "false",
        "db": "shop",
        "sequence": '["4","7"]',
        "ts_us": TIME_US,
        "ts_ns": TIME_US * 1000,
        "schema": "",
        "table": "orders",
        "txId": 4,
        "lsn": 7,
    }
    assert key == {"id": 1}


_PYTHON = {"int64": int, "string": str, "boolean": bool, "double": float, "bytes": str, "struct": dict}


def conforms(value, schema):
    """Check a value against a schema in the words of Kafka Connect."""
    if value is None:
        assert schema["optional"]
        return
    assert type(value) is _PYTHON[schema["type"]], schema
    if schema["type"] == "struct":
        assert value.keys() == {field["field"] for field in schema["fields"]}
        for field in schema["fields"]:
            conforms(value[field["field"]], field)


@pytest.mark.parametrize(
    "change", [insert(ROW), update(ROW, LATER), delete(ROW), insert(dict.fromkeys(ROW) | {"id": 1})]
)
def test_debezium_with_schema_conforms_to_the_schema_that_it_carries(change):
    value, key = wrapped("debezium-schema", change)
    conforms(value["payload"], value["schema"])
    conforms(key["payload"], key["schema"])
    assert value["schema"]["name"] == "shop.orders.Envelope"
    assert value["schema"]["fields"][0]["name"] == "shop.orders.Value"
    assert key["schema"]["name"] == "shop.orders.Key"
    meanings = {field["field"]: field.get("name") for field in value["schema"]["fields"][1]["fields"]}
    assert (meanings["at"], meanings["more"]) == (None, "io.debezium.data.Json")


def test_debezium_with_schema_tells_the_values_of_a_row():
    value, key = wrapped("debezium-schema", insert(ROW))
    assert value["payload"]["after"] == {**PLAIN, "more": '{"a":[1,2]}'}
    assert key["payload"] == {"id": 1}


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Kind.I64, "text"),
        (Kind.I64, 2**63),
        (Kind.F64, math.nan),
        (Kind.BOOL, 2),
        (Kind.BYTES, "text"),
        (Kind.DEC, "x"),
    ],
)
def test_debezium_with_schema_refuses_a_value_that_is_not_of_its_column_by_the_columns_name(kind, value):
    schema = TableSchema(TableName("shop", "odd"), 1, (Column("id", Kind.I64), Column("cell", kind)), ("id",))
    with pytest.raises(UnfitError, match=r"^the value in column 'cell' is not of the column's type$"):
        wrapped("debezium-schema", insert({"id": 1, "cell": value}, schema=schema))


@pytest.mark.parametrize(
    ("change", "snapshot", "type_", "data", "old"),
    [
        (insert(ROW), False, "insert", PLAIN, None),
        (insert(ROW), True, "bootstrap-insert", PLAIN, None),
        (update(ROW, LATER), False, "update", LATER_PLAIN, {"customer": "Ann Ægir", "paid": True}),
        (update(None, LATER), False, "update", LATER_PLAIN, None),
        (delete(ROW), False, "delete", PLAIN, None),
    ],
)
def test_maxwell_tells_the_row_and_what_its_changed_columns_were(change, snapshot, type_, data, old):
    value, _ = wrapped("maxwell", change, snapshot=snapshot)
    assert (value["type"], value["data"], value.get("old")) == (type_, data, old)
    assert (value["database"], value["table"], value["ts"], value["xid"]) == ("shop", "orders", TIME_US // 10**6, 4)
    assert (value["primary_key"], value["primary_key_columns"]) == ([1], ["id"])


def test_the_row_alone_is_what_it_is_after_the_change_and_a_tombstone_once_it_is_gone():
    assert wrapped("row", insert(ROW)) == (PLAIN, {"id": 1})
    assert wrapped("row", update(ROW, LATER)) == (LATER_PLAIN, {"id": 1})
    assert wrapped("row", delete(ROW)) == (None, {"id": 1})


@pytest.mark.parametrize(
    ("name", "expected", "key"),
    [
        ("tailrace", {"op": "truncate", "pk": []}, []),
        ("debezium", {"op": "t", "before": None, "after": None}, None),
        ("maxwell", {"type": "truncate", "primary_key": [], "data": {}}, []),
        ("cloudevents", {"type": "tailrace.truncate", "subject": "[]"}, []),
        ("row", None, {}),
    ],
)
def test_a_truncation_is_told_without_a_row(name, expected, key):
    value, told_key = wrapped(name, truncate())
    assert told_key == key
    if expected is None:
        assert value is None
    else:
        assert expected.items() <= value.items()


def test_debezium_with_schema_tells_a_truncation_that_conforms_and_has_no_key():
    value, key = wrapped("debezium-schema", truncate())
    assert value["payload"]["op"] == "t"
    conforms(value["payload"], value["schema"])
    assert key == {"schema": None, "payload": None}


def check_event(event, change):
    assert event.get_attributes() == {
        "specversion": "1.0",
        "id": ID,
        "source": "/shop/orders",
        "type": "tailrace.update",
        "subject": "[1]",
        "time": datetime.fromtimestamp(TIME_US // 10**6, UTC).replace(microsecond=TIME_US % 10**6),
        "datacontenttype": "application/json",
        "sequence": "00000000000000000007",
        "partitionkey": "[1]",
    }
    assert event.get_data() == wrapped("tailrace", change)[0]


def test_the_published_parser_reads_structured_cloud_events():
    change = update(ROW, LATER)
    made = envelope_of("cloudevents").wrap(change, ID)
    check_event(http.from_http_event(http.HTTPMessage({"content-type": made.content_type}, made.value)), change)


def test_the_published_parser_reads_binary_cloud_events_over_http_and_kafka():
    change = update(ROW, LATER)
    made = envelope_of("cloudevents-binary").wrap(change, ID)
    headers = {**dict(made.headers), "content-type": made.content_type}
    check_event(http.from_http_event(http.HTTPMessage(headers, made.value)), change)
    renamed = {name.replace("ce-", "ce_", 1): value.encode() for name, value in headers.items()}
    check_event(kafka.from_kafka_event(kafka.KafkaMessage(renamed, made.key, made.value)), change)


@given(st.text())
def test_a_key_of_any_text_survives_the_headers_of_a_binary_cloud_event(name):
    schema = TableSchema(TableName("shop", "named"), 1, (Column("name", Kind.STR),), ("name",))
    made = envelope_of("cloudevents-binary").wrap(insert({"name": name}, schema=schema), ID)
    assert all(text.isascii() and text.isprintable() and " " not in text for _, text in made.headers)
    headers = {**dict(made.headers), "content-type": made.content_type}
    event = http.from_http_event(http.HTTPMessage(headers, made.value))
    assert json.loads(event.get_attributes()["subject"]) == [name]


@pytest.mark.parametrize("name", ENVELOPES)
def test_all_changes_of_a_row_have_one_key_and_equal_changes_equal_bytes(name):
    made = [envelope_of(name).wrap(one, ID) for one in (insert(ROW), update(ROW, LATER), delete(LATER))]
    assert len({one.key for one in made}) == 1
    assert envelope_of(name).wrap(insert(ROW), ID) == made[0]


@pytest.mark.parametrize("name", ENVELOPES)
def test_a_table_without_primary_key_is_told_by_its_row_number(name):
    schema = TableSchema(TableName("shop", "notes"), 1, (Column("text", Kind.STR),))
    assert b"9" in envelope_of(name).wrap(insert({"text": "a"}, schema=schema, row_number=9), ID).key


def test_an_envelope_that_there_is_not_is_refused_with_those_that_there_are():
    with pytest.raises(ConfigError, match="unknown envelope 'avro'; known: tailrace, debezium, "):
        envelope_of("avro")


FILES = TableSchema(
    TableName("app", "files"),
    1,
    (
        Column("id", Kind.I64, nullable=False),
        Column("name", Kind.STR),
        Column("body", Kind.BYTES),
        Column("size", Kind.I64),
    ),
    ("id",),
)
SENT = b'{"id":1,"name":"a","size":2}'


def partial(before, after, op=Op.UPDATE):
    return Change(5, 3, 1_000_000, 0, op, FILES, b"[1]", before, after)


def value_of(name, change):
    return wrapped(name, change)[0]


@pytest.mark.parametrize("name", ["tailrace", "cloudevents", "cloudevents-binary"])
def test_a_column_that_was_not_sent_is_left_out(name):
    event = value_of(name, partial(None, SENT))
    assert (event.get("data") or event)["after"] == {"id": 1, "name": "a", "size": 2}


def test_debezium_has_a_marker_for_what_was_not_sent():
    event = value_of("debezium", partial(b'{"id":1}', SENT))
    unavailable = "__debezium_unavailable_value"
    assert event["after"] == {"id": 1, "name": "a", "body": unavailable, "size": 2}
    assert event["before"] == {"id": 1, "name": unavailable, "body": unavailable, "size": unavailable}


def test_debezium_with_schemas_has_markers_of_the_types_that_it_tells():
    payload = value_of("debezium-schema", partial(b'{"id":1}', SENT))["payload"]
    assert payload["before"] is None, "a number has no marker"
    assert base64.b64decode(payload["after"]["body"]) == b"__debezium_unavailable_value"
    with pytest.raises(UnfitError, match="did not send column 'size'"):
        value_of("debezium-schema", partial(None, b'{"id":1,"name":"a","body":null}'))


def test_maxwell_has_no_old_value_of_what_did_not_change():
    event = value_of("maxwell", partial(b'{"id":1,"name":"b","body":"AA==","size":2}', SENT))
    assert event["data"] == {"id": 1, "name": "a", "size": 2}
    assert event["old"] == {"name": "b"}


def test_a_row_is_as_whole_as_both_images_make_it():
    assert value_of("row", partial(b'{"id":1,"name":"b","body":"AA==","size":1}', SENT))["body"] == "AA=="
    assert value_of("row", partial(b'{"id":1}', SENT)) == {"id": 1, "name": "a", "size": 2}


def test_a_row_is_sent_with_the_names_of_what_it_lacks_beside_it():
    made = [envelope_of("row").wrap(partial(before, SENT), ID).headers for before in (None, b'{"id":1,"body":null}')]
    assert made == [(("tailrace-unchanged", '["body"]'),), ()]


@pytest.mark.parametrize(
    ("image", "lacks"),
    [
        (b'{"id":1,"name":"a","body":null,"size":2}', False),
        (b'{"id":1,"name":"\\":","body":null,"size":2}', False),
        (b'{"id":1,"name":"\\":","body":null}', True),
        (b'{"id":1,"name":{"t":"f64","v":"NaN"},"body":null}', True),
        (b'{"id":1,"name":{"t":"f64","v":"NaN"},"body":null,"size":1}', False),
        (b"{}", True),
    ],
)
def test_an_image_that_lacks_cells_is_known(image, lacks):
    assert lacks_cells(image, FILES) is lacks
