"""Facts about where a feed begins."""

import pytest

from tailrace.interface.skeindb.resume import start_after, start_of_stream
from tailrace.model.errors import InvalidRequestError
from tailrace.model.start import After

CASES = [
    ("neither: the cursor", None, None, 5, 5),
    ("the header", None, "9", 5, 9),
    ("the parameter wins over the header", "7", "9", 5, 7),
    ("the parameter wins over junk in the header", "7", "junk", 5, 7),
    ("never before the cursor", "3", None, 5, 5),
    ("never before the cursor by the header either", None, "0", 5, 5),
    ("leading zeroes are digits", "007", None, 5, 7),
]


@pytest.mark.parametrize(
    ("from_offset", "last_event_id", "cursor", "after"),
    [case[1:] for case in CASES],
    ids=[case[0] for case in CASES],
)
def test_a_stream_begins_after(from_offset, last_event_id, cursor, after):
    assert start_of_stream(from_offset, last_event_id, cursor) == After(after)


JUNK = ["", " ", "x", "-1", "+1", "1.0", "1e3", "0x10", "٣", "1\n", " 1", "1" * 21, "null"]


@pytest.mark.parametrize("junk", JUNK)
def test_junk_is_refused_by_name(junk):
    with pytest.raises(InvalidRequestError, match="invalid Last-Event-ID header"):
        start_of_stream(None, junk, 0)
    with pytest.raises(InvalidRequestError, match="invalid from_offset"):
        start_of_stream(junk, "5", 0)


def test_a_poll_begins_at_the_further_of_what_was_seen_and_what_was_acknowledged():
    assert start_after(3, 5) == After(5)
    assert start_after(8, 5) == After(8)
