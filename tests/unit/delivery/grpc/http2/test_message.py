"""Cutting bytes into gRPC messages."""

import gzip
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.delivery.grpc.call import StatusCode, StatusError, prefixed
from tailrace.delivery.grpc.http2.message import MessageReader


def compressed(message):
    data = gzip.compress(message)
    return b"\x01" + len(data).to_bytes(4, "big") + data


def test_a_prefix_is_a_flag_and_the_length():
    assert prefixed(b"abc") == b"\x00\x00\x00\x00\x03abc"


@given(
    st.lists(st.tuples(st.binary(max_size=40), st.booleans()), max_size=8), st.lists(st.integers(0, 12), max_size=60)
)
def test_any_split_of_the_bytes_gives_the_same_messages(messages, steps):
    reader = MessageReader(1 << 20, "gzip")
    data = b"".join(compressed(message) if packed else prefixed(message) for message, packed in messages)
    read, place = [], 0
    for step in [*steps, len(data)]:
        read += reader.feed(data[place : place + step])
        place += step
    assert read == [message for message, _ in messages]
    assert reader.held_bytes == 0


@given(st.binary(max_size=200), st.sampled_from(["identity", "gzip"]))
def test_any_bytes_give_messages_or_a_status(data, encoding):
    reader = MessageReader(64, encoding)
    with suppress(StatusError):
        messages = reader.feed(data)
        assert all(len(message) <= 64 for message in messages)
        assert reader.held_bytes <= 64 + 5


@pytest.mark.parametrize(
    ("data", "encoding", "code"),
    [
        (prefixed(b"x" * 101), "identity", StatusCode.RESOURCE_EXHAUSTED),
        (b"\x00\xff\xff\xff\xff", "identity", StatusCode.RESOURCE_EXHAUSTED),
        (compressed(b"x" * 10_000), "gzip", StatusCode.RESOURCE_EXHAUSTED),
        (compressed(b"x"), "identity", StatusCode.INTERNAL),
        (b"\x02" + prefixed(b"x")[1:], "gzip", StatusCode.INTERNAL),
        (b"\x01\x00\x00\x00\x02no", "gzip", StatusCode.INTERNAL),
        (b"\x01\x00\x00\x00\x08" + gzip.compress(b"x")[:8], "gzip", StatusCode.INTERNAL),
    ],
    ids=[
        "one byte too large",
        "the largest length there is",
        "small until decompressed",
        "compressed without agreement",
        "an unknown flag",
        "not gzip",
        "gzip cut short",
    ],
)
def test_a_message_that_breaks_a_rule_has_its_status(data, encoding, code):
    with pytest.raises(StatusError) as caught:
        MessageReader(100, encoding).feed(data)
    assert caught.value.code is code


def test_a_message_of_the_largest_size_is_read():
    assert MessageReader(100).feed(prefixed(b"x" * 100)) == [b"x" * 100]
