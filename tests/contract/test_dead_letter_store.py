"""Facts about dead letters in the metadata database, on every kind of it."""

import msgspec
import pytest
from sqlalchemy import select

from changing import insert
from tailrace.meta.dead_letter import LetterDraft, LetterFigures, LetterState
from tailrace.meta.dead_letter_store import DeadLetterStore, key_hash
from tailrace.meta.table import dead_letter
from tailrace.model.errors import SinkRefusedError
from tailrace.testing.clock import FakeClock

REFUSED, BEHIND, RETRY, DROPPED = LetterState


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def store(metadata_url, clock):
    opened = DeadLetterStore.open(metadata_url, clock)
    yield opened
    opened.close()


def change(key, offset):
    return insert({"id": key, "customer": "Ann Ægir", "photo": b"\x00\xff"}, offset=offset)


def draft(key, offset, state=REFUSED, reason="too large"):
    return LetterDraft(f"shop/{offset}", change(key, offset), False, state, reason)


def park(store, *drafts, sink="s", letters_max=100):
    return store.park(sink, drafts, letters_max)


def states(store, sink="s"):
    return {letter.change.offset: letter.state for letter in store.parked(sink)}


def ids(store, *offsets, sink="s"):
    return [letter.id for letter in store.parked(sink) if letter.change.offset in offsets]


def test_a_letter_is_kept_to_the_letter(store, clock):
    assert park(store, draft(1, 7)) == 1
    (letter,) = store.parked("s")
    assert letter.change == change(1, 7)
    assert (letter.sink, letter.message_id, letter.state, letter.reason) == ("s", "shop/7", REFUSED, "too large")
    assert (letter.parked_time_us, letter.tries, letter.snapshot) == (clock.now_us(), 1, False)
    assert store.get("s", letter.id) == letter
    assert store.get("other", letter.id) is None
    assert store.get("s", letter.id + 1) is None


def test_a_letter_that_is_there_stays_as_it_is(store):
    park(store, draft(1, 7))
    assert park(store, draft(1, 7, BEHIND, "otherwise"), draft(1, 8, BEHIND, "")) == 1
    assert states(store) == {7: REFUSED, 8: BEHIND}


def test_a_full_store_takes_none_of_them_and_says_what_to_do(store):
    park(store, draft(1, 1), draft(2, 2))
    with pytest.raises(SinkRefusedError, match="retry or drop"):
        park(store, draft(3, 3), draft(4, 4), letters_max=3)
    assert states(store) == {1: REFUSED, 2: REFUSED}
    assert park(store, draft(1, 1), letters_max=2) == 0
    park(store, draft(3, 3), letters_max=3)
    park(store, draft(9, 9), sink="other", letters_max=1)


def test_letters_that_differ_in_case_alone_are_two(store):
    one, other = (LetterDraft(f'shop/9/orders/["{key}"]', change(1, 9), True, REFUSED, "") for key in ("a", "A"))
    assert park(store, one, other) == 2


def test_a_key_is_parked_from_its_first_offset(store):
    park(store, draft(1, 7), draft(2, 8), draft(1, 9, BEHIND))
    assert store.keys("s") == {key_hash("s", change(1, 0)): 7, key_hash("s", change(2, 0)): 8}
    assert store.keys("other") == {}


def test_a_retry_is_of_all_letters_of_the_key_in_order(store):
    park(store, draft(1, 9, BEHIND), draft(2, 8), draft(1, 7))
    assert store.due("s", 10) == []
    assert store.retry("s", ids(store, 9)) == 2
    assert [letter.change.offset for letter in store.due("s", 10)] == [7, 9]
    assert [letter.change.offset for letter in store.due("s", 1)] == [7]
    assert states(store)[8] == REFUSED


def test_a_letter_that_comes_behind_a_retry_is_of_it(store):
    park(store, draft(1, 7), draft(2, 8))
    store.retry("s", ids(store, 7))
    park(store, draft(1, 9, BEHIND), draft(2, 10, BEHIND))
    park(store, draft(1, 9, BEHIND), sink="other")
    assert states(store) == {7: RETRY, 8: REFUSED, 9: RETRY, 10: BEHIND}
    assert states(store, "other") == {9: BEHIND}


def test_a_retry_of_all_leaves_other_sinks_alone(store):
    park(store, draft(1, 7), draft(2, 8))
    park(store, draft(1, 7), sink="other")
    assert store.retry("s") == 2
    assert store.retry("s", ids(store, 7, sink="other")) == 0
    assert store.due("other", 10) == []


def test_what_has_arrived_is_forgotten(store):
    park(store, draft(1, 7), draft(2, 8))
    store.sent(ids(store, 7))
    assert states(store) == {8: REFUSED}


def test_a_letter_that_is_refused_again_keeps_its_key_parked(store):
    park(store, draft(1, 7), draft(1, 9, BEHIND), draft(2, 8))
    store.retry("s")
    first, *_ = store.due("s", 10)
    store.refused(first, "still too large")
    assert states(store) == {7: REFUSED, 8: RETRY, 9: BEHIND}
    found = store.get("s", first.id)
    assert (found.reason, found.tries) == ("still too large", 2)


def test_dropped_letters_are_gone_and_their_numbers_are_not_given_again(store):
    park(store, draft(1, 7), draft(2, 8))
    gone = ids(store, 8)
    assert store.drop("other", gone) == 0
    assert store.drop("s", gone) == 1
    park(store, draft(3, 9))
    assert ids(store, 9) > gone
    assert store.drop("s") == 2
    assert states(store) == {}


def test_figures_tell_how_many_there_are_and_since_when(store, clock):
    assert store.figures() == {}
    begin = clock.now_us()
    park(store, draft(1, 7))
    clock.advance(5)
    park(store, draft(2, 8))
    park(store, draft(1, 7), sink="other")
    assert store.figures() == {"s": LetterFigures(2, begin), "other": LetterFigures(1, begin + 5_000_000)}


def test_many_and_large_letters_fit(store):
    large = msgspec.structs.replace(change(1, 1), after=b'{"customer":"' + b"x" * 1_000_000 + b'"}')
    many = [draft(key, key) for key in range(2, 1300)]
    assert park(store, LetterDraft("shop/1", large, False, REFUSED, ""), *many, letters_max=5000) == 1299
    assert store.parked("s")[0].change == large
    assert len(store.parked("s", limit=2000)) == 1299
    assert len(store.parked(limit=10, after=ids(store, 1)[0])) == 10
    store.sent([letter.id for letter in store.parked("s", limit=2000)])
    assert store.figures() == {}


def test_a_dropped_letter_is_a_letter_no_more_and_is_not_parked_again(store, clock):
    park(store, draft(1, 7), draft(1, 9, BEHIND), draft(2, 8))
    store.retry("s", ids(store, 7))
    first, *_ = store.due("s", 10)
    assert store.drop("s", ids(store, 7)) == 1
    store.refused(first, "too late")
    assert store.retry("s") == 2
    assert store.drop("s", [first.id]) == 0
    assert (states(store), store.get("s", first.id)) == ({8: RETRY, 9: RETRY}, None)
    assert store.keys("s") == {key_hash("s", change(1, 0)): 9, key_hash("s", change(2, 0)): 8}
    assert store.figures() == {"s": LetterFigures(2, clock.now_us())}
    assert (store.dropped("s"), store.dropped("other")) == ({"shop/7"}, set())
    assert park(store, draft(1, 7), draft(3, 10), letters_max=3) == 1
    assert states(store) == {8: RETRY, 9: RETRY, 10: REFUSED}


def test_nothing_of_a_row_is_kept_of_a_dropped_letter(store):
    park(store, draft(4242, 7, reason="for 4242"))
    store.drop("s")
    with store.database.engine.connect() as connection:
        (row,) = connection.execute(select(dead_letter)).all()
    assert "4242" not in str(row)
    assert "Ann" not in str(row)


def test_that_a_letter_was_dropped_is_forgotten_after_a_month_or_with_its_sink(store, clock):
    park(store, draft(1, 7))
    store.drop("s")
    clock.advance(31 * 86_400)
    park(store, draft(2, 8))
    store.drop("s")
    assert store.dropped("s") == {"shop/8"}
    park(store, draft(3, 9))
    store.forget("s")
    assert (store.dropped("s"), states(store)) == (set(), {})
    assert park(store, draft(2, 8)) == 1


def test_letters_are_due_up_to_an_offset(store):
    park(store, draft(1, 7), draft(2, 8))
    store.retry("s")
    assert [letter.change.offset for letter in store.due("s", 10, through=7)] == [7]
