"""Headers of messages."""

import msgspec

from tailrace.message.target.header import ascii_json, ascii_text, headers_of
from target_messages import Teller


def test_the_first_header_is_the_id_whoever_made_the_message():
    message = Teller().change(1)
    assert headers_of(message) == message.headers
    bare = msgspec.structs.replace(message, headers=(("other", "text"),))
    assert headers_of(bare) == (("tailrace-id", message.id), ("other", "text"))


def test_text_that_headers_cannot_hold_is_percent_encoded():
    assert ascii_text("50% of shop/7 [1]") == "50% of shop/7 [1]"
    assert ascii_text("50% żó\n") == "50%25 %C5%BC%C3%B3%0A"


def test_json_is_escaped_to_plain_characters():
    assert ascii_json('["żółć"]'.encode()) == '["\\u017c\\u00f3\\u0142\\u0107"]'
    assert ascii_json(b'{"a": 1}') == '{"a": 1}'
