"""Headers of messages. Pure."""

import json
from collections.abc import Mapping
from urllib.parse import quote

from tailrace.message.base import Message

__all__ = ["ID", "PRINTABLE", "TOMBSTONE_HEADER", "ascii_json", "ascii_text", "headers_of"]

ID = "tailrace-id"
"""Name of the header with the message's id, by which a reader tells repeats."""

TOMBSTONE_HEADER: Mapping[bool, Mapping[str, str]] = {True: {"tailrace-tombstone": "true"}, False: {}}
"""What tells a message without a value from one whose value is empty, where the target cannot."""

PRINTABLE = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) != "%")
"""Printable ASCII but the percent sign."""


def headers_of(message: Message) -> tuple[tuple[str, str], ...]:
    """Return the message's headers, of which the first is its id."""
    headers = message.headers
    return headers if headers and headers[0][0] == ID else ((ID, message.id), *headers)


def ascii_text(text: str) -> str:
    """Return a text for headers of printable ASCII: where it has more, all but that is percent-encoded, as is `%`."""
    return text if text.isascii() and text.isprintable() else quote(text, safe=PRINTABLE)


def ascii_json(document: bytes) -> str:
    """Return a JSON document in ASCII, where nothing else may be had: what is beyond is escaped, as JSON allows."""
    return document.decode() if document.isascii() else json.dumps(json.loads(document), separators=(",", ":"))
