"""Facts about the records of streams as bytes."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feeding import chunk_of, draft_of, schema_of
from tailrace.delivery.encoded import Piece
from tailrace.delivery.frame import payloads
from tailrace.delivery.view import View
from tailrace.interface.skeindb.framing import SseFraming, SseManyFraming, WsFraming, WsManyFraming, parse_places
from tailrace.interface.skeindb.present import SSE, WS, encode
from tailrace.model.errors import InvalidRequestError
from tailrace.model.op import Op
from tailrace.model.subscription import Format, Include


def piece_of(wire, first, count):
    """Return changes as a stream takes them, with an offset more looked at than sent."""
    chunk = chunk_of([schema_of("users")], draft_of([(Op.INSERT, 1)] * count), first=first)
    encoded = encode(chunk, range(count), View(wire, Format.PLAIN_JSON, Include(after=True)))
    return Piece(encoded.cut(first - 1, count, 1 << 20).data, count, first + count)


def records_of(data):
    return [dict(line.split(": ", 1) for line in text.split("\n")) for text in data.decode().split("\n\n")[:-1]]


@pytest.mark.parametrize("framing", [SseFraming(), WsFraming()], ids=["sse", "ws"])
def test_changes_of_one_subscription_go_out_as_they_were_encoded(framing):
    piece = piece_of(framing.wire, 5, 3)
    assert framing.changes(1, piece) is piece.data


def test_control_records_of_one_subscription():
    assert SseFraming().control(1, "backpressure", b'{"a":1}', 7) == b'id: 7\nevent: backpressure\ndata: {"a":1}\n\n'
    (text,) = payloads(WsFraming().control(1, "backpressure", b'{"a":1}', 7))
    assert text == b'{"id":7,"event":"backpressure","data":{"a":1}}'
    (text,) = payloads(WsFraming().answer(1, "ack", b'{"a":1}'))
    assert text == b'{"event":"ack","data":{"a":1}}'


def test_each_server_sent_event_of_many_tells_the_places_of_all():
    framing = SseManyFraming({1: 10, 0x2F: 20})
    records = records_of(framing.changes(1, piece_of(SSE, 11, 3)))
    assert [record["id"] for record in records] == ["2f:20,1:11", "2f:20,1:12", "2f:20,1:13"]
    data = json.loads(records[0]["data"])
    assert list(data)[:2] == ["sub_id", "seq"]
    assert (data["sub_id"], data["seq"]) == ("sub_0000000000000001", 11)
    records = records_of(framing.changes(0x2F, piece_of(SSE, 30, 2)))
    assert [record["id"] for record in records] == ["1:14,2f:30", "1:14,2f:31"]
    (record,) = records_of(framing.control(1, "heartbeat", b"{}", 99))
    assert (record["id"], record["event"]) == ("2f:32,1:99", "heartbeat")


def test_what_was_looked_at_without_a_match_counts_as_seen():
    framing = SseManyFraming({1: 10, 2: 20})
    assert framing.changes(1, Piece(b"", 0, 15)) == b""
    (record,) = records_of(framing.control(2, "heartbeat", b"{}", 20))
    assert record["id"] == "1:15,2:20"


def test_each_frame_of_many_names_its_subscription():
    framing = WsManyFraming()
    frames = [json.loads(text) for text in payloads(framing.changes(3, piece_of(WS, 11, 2)))]
    assert [list(frame) for frame in frames] == [["sub_id", "id", "event", "data"]] * 2
    assert [frame["id"] for frame in frames] == [11, 12]
    assert {frame["sub_id"] for frame in frames} == {"sub_0000000000000003"}
    (text,) = payloads(framing.control(3, "end", b"{}", 7))
    assert text == b'{"sub_id":"sub_0000000000000003","id":7,"event":"end","data":{}}'
    (text,) = payloads(framing.answer(3, "ack", b"{}"))
    assert text == b'{"sub_id":"sub_0000000000000003","event":"ack","data":{}}'
    (text,) = payloads(framing.answer(None, "error", b"{}"))
    assert text == b'{"event":"error","data":{}}'


@given(st.dictionaries(st.integers(1, 2**63), st.integers(0, 2**63), min_size=1, max_size=64))
def test_places_come_out_of_an_id_as_they_went_in(places):
    (record,) = records_of(SseManyFraming(places).control(next(iter(places)), "x", b"{}", next(iter(places.values()))))
    assert parse_places(record["id"]) == places


@pytest.mark.parametrize(
    "text",
    ["", "1", "1:", ":1", "1:2,", "1:-2", "g:1", "1:x", "1:²", "0x1:1", "+1:1", "1_0:1", "1:1" * 2000, "1:" + "9" * 30],
)
def test_what_is_no_id_of_many_is_refused(text):
    with pytest.raises(InvalidRequestError, match="invalid Last-Event-ID header"):
        parse_places(text)
