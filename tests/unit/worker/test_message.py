"""Facts about what the main process and its workers say to each other."""

import pytest

from tailrace.delivery.http.hand_over import Interval, StreamKind
from tailrace.log.state import State
from tailrace.model.errors import LogClosedError, UnauthenticatedError, UnknownSubscriptionError
from tailrace.model.op import Op
from tailrace.model.subscription import FilterOptions, Format, Include, SourceTarget, Subscription, TableTarget
from tailrace.model.table import TableName
from tailrace.worker.message import (
    TO_WORKER,
    ChangeSubscription,
    EndFeed,
    Framer,
    GivenFeed,
    Grown,
    Reason,
    ServeFeeds,
    ServeInterval,
    framed,
    reason_of,
)


def subscription(target, **options):
    wanted = FilterOptions((Op.INSERT, Op.DELETE), **options)
    return Subscription(7, "app", target, wanted, Include(after=True), Format.PLAIN_JSON, 5, 1, auto_ack=True)


TABLE = TableTarget((TableName("app", "users"),))
STATE = State(head=9, last_index=3, horizon=2, active_index=1, synced_bytes=4096, time_us=1)
MESSAGES = [
    ServeFeeds(
        1,
        b"GET / HTTP/1.1\r\nx: \xff\r\n\r\n",
        StreamKind.WS,
        [
            GivenFeed(1, subscription(TABLE, key=({"t": "i64", "v": 2**80},), raw_key=b"\xff\0"), 5, None),
            GivenFeed(2, subscription(SourceTarget("app")), 0, ("app", frozenset({"app.t"}), (("app.t", "a > 'ü'"),))),
        ],
    ),
    ServeInterval(2, b"", Interval("app", 3, 9, frozenset({1, 2}), "lz4")),
    Grown("app", STATE, 3),
    EndFeed(1, Reason.EXPIRED),
    ChangeSubscription(subscription(TABLE, where="name = 'x'")),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_arrives_as_it_was_sent(message):
    ((data, taken),) = Framer().feed(framed(message))
    assert (TO_WORKER.decode(data), taken) == (message, False)


@pytest.mark.parametrize("size", [1, 2, 7, 100, 5000])
def test_messages_are_found_however_they_are_cut(size):
    data = b"".join(framed(message, with_connection=place % 2 == 0) for place, message in enumerate(MESSAGES))
    framer, found = Framer(), []
    for begin in range(0, len(data), size):
        found += framer.feed(data[begin : begin + size])
    assert [(TO_WORKER.decode(message), taken) for message, taken in found] == [
        (message, place % 2 == 0) for place, message in enumerate(MESSAGES)
    ]


def test_what_no_message_is_large_enough_for_is_refused():
    with pytest.raises(ValueError, match="bytes"):
        list(Framer().feed(b"\xff" * 8))


@pytest.mark.parametrize(
    "error",
    [
        UnknownSubscriptionError("sub-7"),
        LogClosedError("the service stops"),
        UnauthenticatedError(),
        UnauthenticatedError(expired=True),
    ],
    ids=repr,
)
def test_a_feed_ends_elsewhere_with_the_error_that_it_ended_with_here(error):
    again = reason_of(error).error(subscription(TABLE))
    assert (type(again), str(again)) == (type(error), str(error))
