"""One contract, all targets: order, ids, repeats, refusals, marks, values."""

import msgspec
import pytest

from tailrace.message.base import Intake
from tailrace.model.errors import SinkRefusedError
from target_messages import Teller
from target_places import PLACES, check


@pytest.fixture(params=list(PLACES))
def place(request, tmp_path, brokers):
    return PLACES[request.param](tmp_path, brokers)


@pytest.fixture
def teller():
    return Teller()


@pytest.fixture
def target(place, teller):
    target = place.target()
    target.open(teller.schemas)
    yield target
    target.close()


def send(target, messages, size=40):
    """Send messages in batches; the mark of each is the number of messages until then."""
    for begin in range(0, len(messages), size):
        batch = messages[begin : begin + size]
        assert not target.send(batch, str(begin + len(batch)).encode())


def test_messages_of_a_key_arrive_in_order_and_each_with_its_id(place, target, teller):
    messages = teller.changes(200)
    send(target, messages)
    check(place, messages)


def test_tables_that_appear_after_a_target_was_opened_have_their_place_made_then(place):
    teller = Teller("orders", "lines")
    target = place.target()
    target.open([])
    messages, more = teller.changes(5), teller.changes(5, table=1)
    send(target, messages)
    send(target, more)
    target.close()
    check(place, messages)
    check(place, more, table="lines")


def test_offset_index_schema_version_and_op_go_beside_the_value(place, target, teller):
    if place.documents:
        pytest.skip("a document has no headers")
    (message,) = teller.changes(1)
    send(target, [message])
    (found,) = place.read("orders")
    assert found.headers.items() >= dict(message.headers).items()


def test_messages_that_are_given_again_in_other_batches_are_absent_or_known_by_their_id(place, target, teller):
    messages = teller.changes(100)
    send(target, messages[:80], size=40)
    send(target, messages[30:], size=25)
    send(target, messages[95:], size=1)
    check(place, messages, repeats=place.repeats)


def test_a_target_that_is_opened_anew_knows_what_the_one_before_it_sent(place, target, teller):
    messages = teller.changes(60)
    send(target, messages[:40], size=10)
    target.close()
    again = place.target()
    again.open(teller.schemas)
    assert again.mark() == (b"40" if place.marks else None)
    send(again, messages[25:], size=10)
    again.close()
    check(place, messages, repeats=place.repeats)


def test_the_mark_is_that_of_the_last_batch(place, target, teller):
    assert target.mark() is None
    messages = teller.changes(4)
    for number, message in enumerate(messages):
        target.send([message], b"mark \x00\xff %d" % number)
        assert target.mark() == (b"mark \x00\xff %d" % number if place.marks else None)
    target.send([], b"nothing to send")
    assert target.mark() == (b"nothing to send" if place.marks else None)
    check(place, messages)


def test_sinks_of_other_names_have_marks_of_their_own(place, target, teller):
    send(target, teller.changes(3))
    other = place.target(f"{place.part}-other")
    other.open(teller.schemas)
    assert other.mark() is None
    other.close()


def test_rows_of_a_snapshot_have_one_offset_and_all_arrive(place, target, teller):
    before = teller.changes(5, keys=5)
    rows = teller.snapshot(150)
    after = teller.changes(30, keys=5)
    send(target, before)
    send(target, rows, size=33)
    send(target, after, size=7)
    check(place, before + rows + after)


def test_rows_of_a_snapshot_may_come_after_newer_changes_of_other_tables(place):
    teller = Teller("orders", "lines")
    target = place.target()
    target.open(teller.schemas)
    orders, lines = teller.changes(20), teller.changes(20, table=1)
    rows = Teller("orders", "lines").snapshot(10, table=1)
    more = teller.changes(3)
    send(target, orders + lines + rows + more, size=17)
    target.close()
    check(place, orders + more)
    if not place.documents:
        check(place, lines + rows, table="lines")


def test_a_message_that_is_given_late_arrives(place, target, teller):
    """A message that was parked is sent again after younger ones."""
    if place.documents:
        pytest.skip("an older state of a row does not replace a newer one")
    messages = teller.changes(20)
    late = messages.pop(10)
    send(target, messages)
    send(target, [late])
    check(place, [*messages, late])


def send_without_refused(target, messages, mark):
    """Send a batch; where a refusal keeps others back, send those again. Return the places of those refused."""
    left = list(range(len(messages)))
    refused = []
    while True:
        found = [left[refusal.place] for refusal in target.send([messages[place] for place in left], mark)]
        refused += found
        left = [place for place in left if place not in found]
        if not found or target.traits.intake is not Intake.WHOLE:
            return sorted(refused)


def test_a_refused_message_is_named_by_its_place_and_all_others_arrive(place, target, teller):
    messages = teller.changes(20, keys=100)
    refused = {3: place.refused(messages[3]), 4: place.refused(messages[4]), 17: place.refused(messages[17])}
    if refused[3] is None:
        pytest.skip("the server refuses no single message")
    given = [refused.get(number, message) for number, message in enumerate(messages)]
    assert send_without_refused(target, given, b"20") == [3, 4, 17]
    assert target.mark() == (b"20" if place.marks else None)
    more = teller.changes(5)
    send(target, more)
    check(place, [message for number, message in enumerate(messages) if number not in refused] + more)


def test_what_follows_a_refused_message_of_the_same_key_is_refused_or_not_as_the_target_says(place, target, teller):
    messages = teller.changes(9, keys=3)
    refused = place.refused(messages[1])
    if refused is None:
        pytest.skip("the server refuses no single message")
    found = target.send([messages[0], refused, *messages[2:]], b"9")
    assert all(refusal.reason and "xxxx" not in refusal.reason for refusal in found)
    expected = {
        Intake.EACH: ([1], messages[:1] + messages[2:]),
        Intake.KEYED: ([1, 4, 7], [message for message in messages if message.key != refused.key]),
        Intake.WHOLE: ([1], []),
    }[target.traits.intake]
    if place.documents and len(found) == 1:
        expected = ([1], messages[:1] + messages[2:])
    assert ([refusal.place for refusal in found], target.mark()) == (expected[0], None)
    check(place, expected[1])


def test_a_batch_of_refused_messages_alone_is_refused_wholly(place, target, teller):
    messages = [place.refused(message) for message in teller.changes(2)]
    if messages[0] is None:
        pytest.skip("the server refuses no single message")
    assert send_without_refused(target, messages, b"2") == [0, 1]
    check(place, [])


def test_wrong_credentials_are_refused_without_naming_them(place, teller):
    if not place.credentials:
        pytest.skip("the server asks for no credentials")
    target = place.wrong("0therSecret")
    with pytest.raises(SinkRefusedError) as refused:
        target.open(teller.schemas)
    assert "0therSecret" not in str(refused.value)
    target.close()


TEXTS = ["", "żółć 🌊 \u0000 \u2028 \"quoted\" 'single' \\ %s {0}", "\n\r\t", "a" * 70_000]


def test_values_arrive_as_they_were(place, target, teller):
    messages = [teller.change(key, text) for key, text in enumerate(TEXTS)]
    messages.append(teller.change(100, "ż" * (place.large_bytes // 2)))
    send(target, messages, size=2)
    check(place, messages)


def test_a_value_may_be_empty_and_that_is_no_tombstone(place, target, teller):
    if place.documents:
        pytest.skip("a document is a JSON object")
    message = msgspec.structs.replace(teller.change(1), value=b"")
    send(target, [message])
    check(place, [message])


def test_a_tombstone_follows_the_deletion(place, target, teller):
    messages = teller.changes(4, keys=2)
    messages += teller.delete(0)
    messages.append(teller.change(0, "again"))
    messages += teller.delete(1)
    send(target, messages, size=3)
    check(place, messages)


def test_each_table_has_its_own_place(place):
    teller = Teller("orders", "lines", "Odd Näme/%")
    target = place.target()
    target.open(teller.schemas[:2])
    messages = [message for _ in range(10) for table in range(3) for message in teller.changes(2, table=table)]
    send(target, messages, size=11)
    target.close()
    for schema in teller.schemas[:2]:
        name = schema.table.name
        check(place, [message for message in messages if message.change.schema == schema], table=name)


def test_a_target_may_be_opened_and_closed_as_often_as_one_likes(place, target, teller):
    messages = teller.changes(3)
    send(target, messages[:1])
    target.open(teller.schemas)
    send(target, messages[1:2])
    target.close()
    target.close()
    target.open(teller.schemas)
    send(target, messages[2:])
    check(place, messages)


def test_a_target_declares_in_one_value_what_it_can_do(target):
    declared = target.traits
    assert declared == type(target.traits)(
        declared.intake, declared.tombstones, declared.envelope, declared.changes_max
    ), "a value"
    if declared.intake is Intake.WHOLE:
        assert not target.send([], b"1-2")
        assert target.mark() == b"1-2", "it keeps marks"
    else:
        assert target.mark() is None
