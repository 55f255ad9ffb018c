"""Facts about calls and answers."""

import json
import socket
import ssl

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.client import Client
from tailrace.client.bulk import BulkClient, BulkOptions
from tailrace.client.errors import (
    BadAnswer,
    ClientError,
    ConnectionFailed,
    Forbidden,
    InvalidRequest,
    NotFound,
    ServerFault,
    Unauthorized,
)
from tailrace.client.result import Ping
from tailrace.client.rpc import decode_answer, encode_call, error_of_status, unreached


def test_a_call_is_an_envelope():
    assert json.loads(encode_call("cdc.ack", {"offset": 1})) == {
        "skeinql": "1.0",
        "id": 1,
        "method": "cdc.ack",
        "params": {"offset": 1},
    }


def test_a_good_answer_gives_its_result_whatever_else_is_in_it():
    body = b'{"id":1,"ok":true,"result":{"pong":true,"time_unix_ms":5,"new":1},"new":2}'
    assert decode_answer(200, body, Ping) == Ping(pong=True, time_unix_ms=5)


@pytest.mark.parametrize("status", [200, 401])
def test_an_error_in_the_answer_counts_whatever_the_status(status):
    body = b'{"id":1,"ok":false,"error":{"code":"unauthorized","message":"no","details":{"a":1}}}'
    with pytest.raises(Unauthorized, match="no") as caught:
        decode_answer(status, body, Ping)
    assert caught.value.details == {"a": 1}


@pytest.mark.parametrize(
    "body", [b'{"ok":true}', b'{"ok":false}', b'{"ok":true,"result":[]}', b'{"ok":true,"result":{"pong":1}}']
)
def test_an_answer_without_what_was_asked_for_is_refused(body):
    with pytest.raises(BadAnswer):
        decode_answer(200, body, Ping)


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (200, BadAnswer),
        (204, BadAnswer),
        (301, BadAnswer),
        (400, InvalidRequest),
        (401, Unauthorized),
        (403, Forbidden),
        (404, NotFound),
        (413, InvalidRequest),
        (418, BadAnswer),
        (429, ConnectionFailed),
        (500, ServerFault),
        (502, ConnectionFailed),
        (503, ConnectionFailed),
        (504, ConnectionFailed),
    ],
)
def test_the_status_speaks_where_there_is_no_envelope(status, error):
    assert type(error_of_status(status, b"")) is error
    with pytest.raises(error):
        decode_answer(status, b"<html>", Ping)


def test_the_text_of_a_refusal_is_quoted_up_to_a_limit():
    assert str(error_of_status(404, b"unknown sub_id\n")) == "unknown sub_id"
    assert len(str(error_of_status(404, b"x" * 100_000))) == 500


@given(st.integers(100, 599), st.binary(max_size=30))
def test_any_answer_gives_a_result_or_an_error_of_ours(status, body):
    with pytest.raises(ClientError):
        decode_answer(status, body, Ping)


def caused(by, said="All connection attempts failed"):
    """Return an error of httpx as it comes from below."""
    error = httpx.ConnectError(said)
    error.__cause__ = OSError(said)
    error.__cause__.__context__ = by
    return error


def wrong_version():
    error = ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong version number")
    error.reason = "WRONG_VERSION_NUMBER"
    return error


@pytest.mark.parametrize(
    ("url", "error", "said"),
    [
        ("http://h:1", caused(ConnectionRefusedError(111, "refused")), "http://h:1: nothing listens there"),
        ("http://h:1", caused(ExceptionGroup("", [ConnectionRefusedError()])), "is the server running"),
        ("http://h:1", caused(socket.gaierror(-2, "not known")), "there is no host of that name"),
        ("https://h:1", caused(wrong_version()), "write http:// instead of https://"),
        ("http://h:1", httpx.RemoteProtocolError("Server disconnected without sending a response."), "write https://"),
        ("https://h:1", httpx.RemoteProtocolError("Server disconnected without sending a response."), "response."),
        ("http://h:1", httpx.ReadTimeout(""), "http://h:1: ReadTimeout"),
    ],
)
def test_the_cause_is_said_with_the_address_and_what_to_do(url, error, said):
    assert said in unreached(url, error)


@pytest.fixture
def free_url():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}"


def test_a_port_where_nothing_listens_is_named(free_url):
    with Client(free_url) as client, pytest.raises(ConnectionFailed, match=f"{free_url}: nothing listens there"):
        client.ping()
    bulk = BulkClient(free_url, options=BulkOptions(outage_s_max=0))
    with pytest.raises(ConnectionFailed, match=f"{free_url}: nothing listens there"):
        bulk.info("app")
