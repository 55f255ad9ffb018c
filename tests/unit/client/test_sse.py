"""Facts about the parser of server-sent events."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.client.errors import BadAnswer
from tailrace.client.sse import SseEvent, SseParser

CASES = {
    "an event has id, name and data": (b"id: 7\nevent: insert\ndata: {}\n\n", [("7", "insert", b"{}")]),
    "an event without a name is a message": (b"data: x\n\n", [("", "message", b"x")]),
    "lines of data are joined by line feeds": (b"data: a\ndata: b\n\n", [("", "message", b"a\nb")]),
    "only one space after the colon is left out": (b"data:  a\n\n", [("", "message", b" a")]),
    "the space after the colon is optional": (b"data:a\n\n", [("", "message", b"a")]),
    "a field without a colon has an empty text": (b"data\n\n", [("", "message", b"")]),
    "a block without data is no event": (b"event: insert\n\ndata: x\n\n", [("", "message", b"x")]),
    "a block without data may set the id": (b"id: 5\n\ndata: x\n\n", [("5", "message", b"x")]),
    "the id stays until the next one": (
        b"id: 5\ndata: x\n\ndata: y\n\n",
        [("5", "message", b"x"), ("5", "message", b"y")],
    ),
    "an empty id takes it back": (
        b"id: 5\ndata: x\n\nid\ndata: y\n\n",
        [("5", "message", b"x"), ("", "message", b"y")],
    ),
    "an id with a zero byte is ignored": (b"id: 5\nid: 6\0\ndata: x\n\n", [("5", "message", b"x")]),
    "comments and unknown fields are ignored": (b":\n: hi\nretry: 9\nfoo: bar\ndata: x\n\n", [("", "message", b"x")]),
    "carriage returns end lines": (b"id: 1\rdata: a\r\rdata: b\r\r", [("1", "message", b"a"), ("1", "message", b"b")]),
    "carriage return and line feed end one line": (b"data: a\r\ndata: b\r\n\r\n", [("", "message", b"a\nb")]),
    "other separators are part of a line": (
        "data: a\u2028b\u0085c\x0bd\x1ee\n\n".encode(),
        [("", "message", "a\u2028b\u0085c\x0bd\x1ee".encode())],
    ),
    "a byte order mark at the start is skipped": (b"\xef\xbb\xbfdata: a\n\n", [("", "message", b"a")]),
    "an event that was cut off is none": (b"data: a\n\ndata: b\n", [("", "message", b"a")]),
}


@pytest.mark.parametrize(("text", "events"), CASES.values(), ids=CASES)
def test_what_a_stream_means(text, events):
    assert SseParser().feed(text) == [SseEvent(*event) for event in events]


@pytest.mark.parametrize(("text", "events"), CASES.values(), ids=CASES)
def test_the_same_byte_by_byte(text, events):
    assert parse_cut(text, range(len(text))) == [SseEvent(*event) for event in events]


def parse_cut(text, cuts):
    parser, events, begin = SseParser(), [], 0
    for cut in [*sorted(cuts), len(text)]:
        events += parser.feed(text[begin:cut])
        begin = cut
    return events


def parse_whole(text):
    """Parse all lines at once: another way to say the same."""
    lines = re.split(rb"\r\n|\n|\r", text.removeprefix(b"\xef\xbb\xbf"))[:-1]
    last_id, name, data, events = "", "", [], []
    for line in lines:
        if line == b"":
            if data:
                events.append(SseEvent(last_id, name or "message", b"\n".join(data)))
            name, data = "", []
            continue
        field, _, value = line.partition(b":")
        value = value[1:] if value[:1] == b" " else value
        if field == b"data":
            data.append(value)
        elif field == b"event":
            name = value.decode("utf-8", "replace")
        elif field == b"id" and 0 not in value:
            last_id = value.decode("utf-8", "replace")
    return events


TOKENS = [b"\r", b"\n", b"\r\n", b"\n\n", b"\r\r", b":", b" ", b"data", b"data: ", b"event: ", b"id: ", b"retry: 5"]
TOKENS += [b"7", b"\0", b"insert", b'{"seq":1}', b"\xef\xbb\xbf", "\u2028".encode(), "ü".encode(), b"\xff"]
STREAMS = st.lists(st.sampled_from(TOKENS), max_size=40).map(b"".join)


@given(st.data(), STREAMS)
def test_the_cuts_of_the_network_do_not_matter(data, text):
    cuts = data.draw(st.lists(st.integers(0, len(text)), max_size=12))
    assert parse_cut(text, cuts) == parse_whole(text)


@given(st.binary(max_size=60))
def test_any_bytes_give_events_and_nothing_else(text):
    assert parse_cut(text, [len(text) // 2]) == parse_whole(text)


def test_the_last_id_is_where_to_go_on():
    parser = SseParser("3")
    assert parser.last_id == "3"
    parser.feed(b"id: 7\ndata: x\n\nid: 8\ndata: unfinished\n")
    assert parser.last_id == "7"


def test_an_id_given_before_the_connection_belongs_to_its_first_events():
    assert SseParser("3").feed(b"data: x\n\n") == [SseEvent("3", "message", b"x")]


@pytest.mark.parametrize("piece", [b"data: xxxxxxxx\n", b"xxxxxxxx"], ids=["many lines", "one line"])
def test_an_event_that_never_ends_is_refused(piece):
    parser = SseParser(event_bytes_max=1000)
    with pytest.raises(BadAnswer, match="larger than 1000 bytes"):
        [parser.feed(piece) for _ in range(1000)]


def test_many_small_events_are_not_a_large_one():
    parser = SseParser(event_bytes_max=100)
    assert sum(len(parser.feed(b"data: x\n\n" * 50)) for _ in range(50)) == 2500
