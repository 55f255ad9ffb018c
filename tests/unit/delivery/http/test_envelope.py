"""Facts about the envelope."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from tailrace.delivery.http.envelope import (
    EnvelopeError,
    decode_params,
    decode_request,
    encode_error,
    encode_result,
)
from tailrace.delivery.problem import Problem
from tailrace.model.errors import InvalidRequestError


def test_a_request_may_leave_out_its_id_and_params():
    request = decode_request(b'{"skeinql":"1.0","method":"m"}')
    assert (request.id, bytes(request.params)) == (None, b"{}")


@pytest.mark.parametrize("identity", [b"1", b'"x"', b"-9", b"18446744073709551615", b'"\\u00fc"'])
def test_an_id_is_a_string_or_an_integer_and_comes_back(identity):
    request = decode_request(b'{"skeinql":"1.0","method":"m","id":%s}' % identity)
    assert decode_request(encode_result(request.id, request).replace(b'"ok":true', b'"skeinql":"1.0","method":"m"')).id
    assert request.id is not None


def test_unknown_members_of_an_envelope_are_ignored():
    assert decode_request(b'{"skeinql":"1.0","method":"m","trace":{"a":1}}').method == "m"


NO_JSON = [
    b"",
    b"{",
    b"not json",
    b'{"skeinql":"1.0"',
    b"\xff\xfe",
    b'{"skeinql":"1.0","method":"\xff"}',
    b"[" * 100_000,
]
NO_ENVELOPE = [
    b"[]",
    b"1",
    b'"x"',
    b"null",
    b"{}",
    b'{"skeinql":"1.0"}',
    b'{"method":"m"}',
    b'{"skeinql":1.0,"method":"m"}',
    b'{"skeinql":"1.0","method":7}',
    b'{"skeinql":"1.0","method":"m","id":1.5}',
    b'{"skeinql":"1.0","method":"m","id":[]}',
]


@pytest.mark.parametrize("body", NO_JSON, ids=lambda body: repr(body[:20]))
def test_a_body_that_is_no_json_is_told_so(body):
    with pytest.raises(EnvelopeError) as caught:
        decode_request(body)
    assert caught.value.status in {400, 422}


@pytest.mark.parametrize("body", NO_ENVELOPE)
def test_a_body_that_is_no_envelope_is_told_so(body):
    with pytest.raises(EnvelopeError) as caught:
        decode_request(body)
    assert caught.value.status == 422


@given(st.binary(max_size=60))
def test_any_bytes_are_a_request_or_an_envelope_error(body):
    with contextlib.suppress(EnvelopeError):
        decode_request(body)


class Params(Struct, forbid_unknown_fields=True):
    number: int
    word: str = ""


@pytest.mark.parametrize(
    ("params", "named"),
    [
        (b"{}", "number"),
        (b'{"number":"1"}', "number"),
        (b'{"number":1,"word":2}', "word"),
        (b'{"number":1,"other":2}', "other"),
        (b"[]", "object"),
        (b"null", "object"),
    ],
)
def test_wrong_params_are_named(params, named):
    request = decode_request(b'{"skeinql":"1.0","method":"some.method","params":%s}' % params)
    with pytest.raises(InvalidRequestError, match=named) as caught:
        decode_params(request, Params)
    assert "some.method" in str(caught.value)


def test_an_answer_is_id_ok_and_result_or_error():
    assert encode_result("a", Params(1)) == b'{"id":"a","ok":true,"result":{"number":1,"word":""}}'
    assert encode_error(None, Problem("internal", "m")) == (
        b'{"id":null,"ok":false,"error":{"code":"internal","message":"m"}}'
    )
    assert encode_error(1, Problem("conflict", "m", {"a": 1})) == (
        b'{"id":1,"ok":false,"error":{"code":"conflict","message":"m","details":{"a":1}}}'
    )
