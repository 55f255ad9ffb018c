"""Messages of the WebSocket gateway."""

import json
from contextlib import nullcontext

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from tailrace.interface.sochdb.gateway_message import (
    Encoding,
    KvPut,
    RequestError,
    answer_of,
    decode_payload,
    decode_request,
    error_of,
    event_front,
    ops_of,
    parameters_of,
    rows_of,
)
from tailrace.model.errors import InvalidRequestError
from tailrace.model.op import Op

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.text())
def test_any_text_is_a_request_or_refused_in_seed_a_s_words(text):
    try:
        decoded = json.loads(text)
        well_formed = isinstance(decoded["id"], str) and isinstance(decoded["type"], str)
    except (ValueError, TypeError, KeyError):
        well_formed = False
    with nullcontext() if well_formed else pytest.raises(RequestError, match=r"^Invalid JSON: "):
        decode_request(text)


@given(JSON)
def test_any_json_is_a_request_or_refused_in_seed_a_s_words(document):
    well_formed = (
        isinstance(document, dict) and isinstance(document.get("id"), str) and isinstance(document.get("type"), str)
    )
    if well_formed:
        assert decode_request(json.dumps(document)).id == document["id"]
    else:
        with pytest.raises(RequestError, match=r"^Invalid JSON: "):
            decode_request(json.dumps(document))


@given(st.text(max_size=256), st.text(), JSON)
def test_a_request_keeps_its_id_type_and_payload_whatever_else_there_is(id_, type_, payload):
    text = json.dumps({"more": 1, "payload": payload, "type": type_, "id": id_})
    request = decode_request(text)
    assert (request.id, request.type, json.loads(bytes(request.payload))) == (id_, type_, payload)


@given(JSON)
def test_any_payload_is_of_its_kind_or_refused(payload):
    raw = Raw(json.dumps(payload).encode())
    texts = isinstance(payload, dict) and all(isinstance(payload.get(name), str) for name in ("key", "value"))
    with nullcontext() if texts else pytest.raises(RequestError, match=r"^Invalid payload: "):
        decode_payload(raw, KvPut)


@pytest.mark.parametrize("text", ['{"id":"\\ud800","type":"ping"}', '{"id":"x","type":"\\udfff"}'])
def test_half_a_character_is_refused(text):
    with pytest.raises(RequestError, match=r"^Invalid JSON: "):
        decode_request(text)


@given(st.text(), JSON)
def test_answers_have_their_members_in_order(id_, payload):
    answer = json.loads(answer_of(id_, "result", payload))
    assert list(answer.items()) == [("id", id_), ("type", "result"), ("payload", payload)]
    error = json.loads(error_of(id_, "why"))
    assert list(error.items()) == [("id", id_), ("type", "error"), ("payload", {"message": "why"})]
    assert json.loads(event_front(id_) + b"1}") == {"id": id_, "type": "event", "payload": 1}


def test_a_payload_that_is_left_out_is_null():
    assert decode_request('{"id":"","type":"ping"}').payload == Raw(b"null")


@pytest.mark.parametrize(
    ("names", "ops"),
    [
        ((), tuple(Op)),
        (("Insert",), (Op.INSERT,)),
        (("DELETE", "insert", "Delete"), (Op.INSERT, Op.DELETE)),
        (("SchemaChange",), (Op.SCHEMA, Op.TRUNCATE)),
        (("schema_change", "UPDATE"), (Op.UPDATE, Op.SCHEMA, Op.TRUNCATE)),
    ],
)
def test_operations_go_by_their_names_in_whatever_capitals(names, ops):
    assert ops_of(names) == ops


@pytest.mark.parametrize("names", [("merge",), ("insert", ""), ("Inserted",)])
def test_operations_that_nobody_knows_are_refused(names):
    with pytest.raises(RequestError, match="Insert, Update, Delete and SchemaChange"):
        ops_of(names)


@given(st.binary())
def test_bytes_survive_as_base64_and_text_as_text(data):
    assert Encoding.BASE64.to_bytes(Encoding.BASE64.to_text(data)) == data
    try:
        text = data.decode()
    except UnicodeDecodeError:
        with pytest.raises(RequestError, match="base64"):
            Encoding.UTF8.to_text(data)
    else:
        assert Encoding.UTF8.to_text(data) == text
        assert Encoding.UTF8.to_bytes(text) == data


@given(st.lists(st.none() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.text() | st.binary()))
def test_values_survive_the_way_there_and_back(values):
    (row,) = json.loads(json.dumps(rows_of([values])))
    assert list(parameters_of(row)) == values


@pytest.mark.parametrize("param", [[1], {}, {"t": "none"}, {"t": "bytes", "b64": "?"}])
def test_a_parameter_that_is_no_value_is_refused(param):
    with pytest.raises(InvalidRequestError):
        parameters_of([param])
