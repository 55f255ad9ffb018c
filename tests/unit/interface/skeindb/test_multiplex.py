"""Facts about which subscriptions a connection of many carries."""

import pytest

from tailrace.delivery.http.streaming import STREAMS_MAX
from tailrace.interface.skeindb.sse import parse_streams
from tailrace.model.errors import InvalidRequestError, UnknownSubscriptionError

ONE, TWO = "sub_0000000000000001", "sub_000000000000002f"


@pytest.mark.parametrize(
    ("names", "last_event_id", "streams"),
    [
        ([ONE], None, {1: None}),
        ([TWO, ONE], None, {0x2F: None, 1: None}),
        ([f"{ONE}:7", TWO], None, {1: 7, 0x2F: None}),
        ([ONE, TWO], "2f:9,1:3", {1: 3, 0x2F: 9}),
        ([f"{ONE}:7", TWO], "1:3", {1: 3, 0x2F: None}),
        ([ONE], "5:5", {1: None}),
    ],
    ids=[
        "one",
        "in their order",
        "with an offset in the URL",
        "with what was seen",
        "what was seen wins",
        "others do not matter",
    ],
)
def test_where_each_begins(names, last_event_id, streams):
    assert parse_streams(names, last_event_id) == streams


@pytest.mark.parametrize(
    ("names", "last_event_id", "complaint"),
    [
        ([], None, "name 1 to"),
        ([f"sub_{number:016x}" for number in range(STREAMS_MAX + 1)], None, "name 1 to"),
        ([ONE, ONE], None, "named twice"),
        ([f"{ONE}:x"], None, "invalid from_offset"),
        ([f"{ONE}:"], None, "invalid from_offset"),
        ([ONE], "junk", "invalid Last-Event-ID header"),
        ([ONE], "", "invalid Last-Event-ID header"),
    ],
)
def test_what_cannot_be_is_refused(names, last_event_id, complaint):
    with pytest.raises(InvalidRequestError, match=complaint):
        parse_streams(names, last_event_id)


def test_a_name_that_nobody_has_is_unknown():
    with pytest.raises(UnknownSubscriptionError):
        parse_streams(["junk"], None)
