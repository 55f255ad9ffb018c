"""Facts about events as a client reads them."""

from decimal import Decimal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strategies import VALUES, same
from tailrace.client.errors import BadAnswer
from tailrace.client.event import Backpressure, Heartbeat, Notice, decode_control, decode_event
from tailrace.model.subscription import Format
from tailrace.model.table import Kind
from tailrace.model.value import Array, Text, to_literal

LITERALS = (
    b'{"seq":9,"db":"app","table":"users","op":"update","pk":[{"t":"u64","v":1}],'
    b'"before":{"name":{"t":"str","v":"A"},"due":{"t":"date","iso":"2026-01-31"}},'
    b'"after":{"name":{"t":"null"},"due":{"t":"dec","v":"1.10"}},"commit_ts_ms":1790000000000,"lsn":9,"shard":0}'
)


def decode(raw, format_=Format.OBJECTS_JSON):
    return decode_event(raw, format_, lambda offset: f"acknowledged {offset}")


def test_typed_literals_become_python_values():
    event = decode(LITERALS)
    assert (event.offset, event.db, event.table, event.op, event.pk) == (9, "app", "users", "update", (1,))
    assert event.before == {"name": "A", "due": Text(Kind.DATE, "2026-01-31")}
    assert event.after == {"name": None, "due": Decimal("1.10")}
    assert event.commit_ts_ms == 1790000000000
    assert (event.query_id, event.etag) == (None, None)


def test_plain_values_stay_as_they_are():
    raw = b'{"seq":1,"db":"a","table":"t","op":"insert","pk":[1],"after":{"j":{"t":"i64","v":1}},"commit_ts_ms":5}'
    event = decode(raw, Format.PLAIN_JSON)
    assert event.pk == (1,)
    assert event.after == {"j": {"t": "i64", "v": 1}}
    assert event.before is None


PLAIN = b'{"seq":1,"db":"a","table":"t","op":"insert","pk":[1],"after":{"j":{"t":"i64","v":1}},"commit_ts_ms":5}'
KEYLESS = b'{"seq":1,"db":"a","table":"t","op":"insert","pk":[],"after":{"n":%s},"commit_ts_ms":5}'


@pytest.mark.parametrize(
    ("raw", "after"),
    [
        (LITERALS, {"name": None, "due": Decimal("1.10")}),
        (PLAIN, {"j": {"t": "i64", "v": 1}}),
        (KEYLESS % b'{"t":"i64","v":1}', {"n": 1}),
        (KEYLESS % b"1", {"n": 1}),
    ],
    ids=["literals", "plain", "literals without a key", "plain without a key"],
)
def test_an_event_tells_its_format_by_itself(raw, after):
    assert decode(raw, None).after == after


def test_an_invalidation_has_its_query():
    raw = b'{"seq":1,"db":"a","table":"t","op":"invalidate","query_id":"q_1","etag":"W/\\"q:1\\"","commit_ts_ms":5}'
    event = decode(raw)
    assert (event.query_id, event.etag, event.pk) == ("q_1", 'W/"q:1"', ())


def test_what_has_no_place_of_its_own_and_the_line_itself_are_kept():
    event = decode(LITERALS)
    assert event.more == {"shard": 0}
    assert event.raw == LITERALS


def test_an_event_acknowledges_itself_by_its_offset():
    assert decode(LITERALS).ack() == "acknowledged 9"


@given(st.dictionaries(st.text(max_size=5), VALUES, max_size=4))
def test_no_value_is_lost(image):
    members = {"seq": 1, "db": "a", "table": "t", "op": "insert", "commit_ts_ms": 5}
    members["after"] = {name: to_literal(value) for name, value in image.items()}
    after = decode(msgspec.json.encode(members)).after
    assert after.keys() == image.keys()
    assert all(same(after[name], image[name]) for name in image)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"[]",
        b"{}",
        b'{"seq":"x","db":"a","table":"t","op":"insert","commit_ts_ms":5}',
        b'{"seq":1,"db":"a","table":"t","op":"insert","commit_ts_ms":5,"pk":[1]}',
        b'{"seq":1,"db":"a","table":"t","op":"insert","commit_ts_ms":5,"pk":7}',
        b'{"seq":1,"db":"a","table":"t","op":"insert","commit_ts_ms":5,"after":[]}',
    ],
)
def test_what_is_no_event_is_refused(raw):
    with pytest.raises(BadAnswer):
        decode(raw)


@given(st.binary(max_size=40))
def test_any_bytes_give_an_event_or_are_refused(raw):
    with pytest.raises(BadAnswer):
        decode(raw)


def test_control_events_have_types():
    pressure = b'{"sub_id":"sub_1","state":"throttle","lag":7,"remaining_until_resnapshot":3,"paused":false}'
    assert decode_control("backpressure", pressure) == Backpressure("throttle", 7, 3, paused=False)
    assert decode_control("heartbeat", b'{"sub_id":"sub_1","scanned":12}') == Heartbeat(12)
    assert decode_control("tide", b'{"high":true}') == Notice("tide", {"high": True})


@pytest.mark.parametrize("name", ["backpressure", "heartbeat", "tide"])
def test_a_malformed_control_event_is_refused(name):
    with pytest.raises(BadAnswer, match=name):
        decode_control(name, b"{")


def test_an_event_is_printed_as_a_person_wants_to_see_it():
    assert str(decode(LITERALS)) == (
        "2026-09-21 14:13:20.000 #9 update app.users 1  name: 'A' → null  due: 2026-01-31 → 1.10"
    )
    key_alone = msgspec.structs.replace(decode(LITERALS), before={"id": 1}, after={"id": 1, "name": "B"})
    assert str(key_alone).endswith("update app.users 1  name: ? → 'B'")
    same_images = msgspec.structs.replace(decode(LITERALS), after=decode(LITERALS).before)
    assert str(same_images).endswith("app.users 1  (no column changed)")
    blob = msgspec.structs.replace(decode(LITERALS), op="insert", before=None, after={"b": bytes(2000)})
    assert str(blob).endswith(f"b=x'{'00' * 16}…' (2,000 bytes)")


def test_the_representation_of_an_event_has_its_members_and_neither_functions_nor_bytes():
    shown = repr(decode(LITERALS))
    assert shown.startswith("Event(offset=9, db='app', table='users', op='update'")
    assert "lambda" not in shown
    assert "raw" not in shown


def test_a_value_of_a_type_that_only_a_newer_server_has_is_its_literal():
    literal = {"t": "colour", "v": "#fff"}
    raw = msgspec.json.encode(
        {"seq": 1, "db": "a", "table": "t", "op": "insert", "pk": [], "after": {"c": literal}, "commit_ts_ms": 5}
    )
    event = decode(raw)
    assert event.after == {"c": literal}
    assert "#fff" in str(event)


def test_an_array_is_shown_with_its_bounds_and_a_long_one_by_its_beginning():
    def shown(array):
        raw = msgspec.json.encode(
            {
                "seq": 1,
                "db": "a",
                "table": "t",
                "op": "insert",
                "pk": [],
                "commit_ts_ms": 5,
                "after": {"c": to_literal(array)},
            }
        )
        return str(decode(raw)).partition("c=")[2]

    assert shown(Array(((1, None), ("x", 2)), (0, 1))) == "[[1, null], ['x', 2]] from [0, 1]"
    assert shown(Array(tuple(range(1000)))).endswith("…")
