"""Facts about what a client may say on a WebSocket."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.interface.skeindb.command import Ack, Pause, Resume, Subscribe, Unsubscribe, decode_command
from tailrace.model.errors import InvalidRequestError


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ('{"type":"ack","offset":7}', Ack(offset=7)),
        ('{"sub_id":"sub_1","offset":7,"type":"ack"}', Ack(offset=7, sub_id="sub_1")),
        ('{"type":"pause"}', Pause()),
        ('{"type":"resume","sub_id":"sub_1"}', Resume(sub_id="sub_1")),
        ('{"type":"subscribe","sub_id":"sub_1"}', Subscribe(sub_id="sub_1")),
        ('{"type":"subscribe","sub_id":"sub_1","from_offset":9}', Subscribe(sub_id="sub_1", from_offset=9)),
        ('{"type":"unsubscribe","sub_id":"sub_1"}', Unsubscribe(sub_id="sub_1")),
    ],
)
def test_commands(text, command):
    assert decode_command(text) == command


@given(st.text(max_size=60))
def test_any_other_text_is_refused(text):
    with pytest.raises(InvalidRequestError, match="not a command"):
        decode_command(text)


def test_a_binary_frame_is_refused():
    with pytest.raises(InvalidRequestError, match="send text frames"):
        decode_command(None)
