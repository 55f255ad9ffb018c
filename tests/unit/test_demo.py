"""Facts about how the demo shows changes."""

import random

from tailrace.demo import InOrder


def shown(events, now_s):
    return [event["seq"] for event in events.ready(now_s)]


def test_events_of_several_streams_are_shown_in_the_order_of_their_offsets():
    events, seen = InOrder(1.0), []
    offsets = list(range(1, 200))
    chance = random.Random(7)
    while offsets:
        some = [offsets.pop(0) for _ in range(min(len(offsets), 9))]
        for offset in chance.sample(some, len(some)):
            events.add(offset, {"seq": offset}, 0.0)
            seen += shown(events, 0.5)
    assert seen == list(range(1, 200))


def test_an_event_waits_for_the_one_before_it_but_not_for_ever():
    events = InOrder(1.0)
    events.add(3, {"seq": 3}, 0.0)
    events.add(5, {"seq": 5}, 0.9)
    assert shown(events, 0.99) == []
    assert shown(events, 1.0) == [3]
    events.add(4, {"seq": 4}, 1.1)
    assert shown(events, 1.1) == [4, 5]
    events.add(2, {"seq": 2}, 1.2)
    assert shown(events, 1.2) == [2]  # too late: shown at once
