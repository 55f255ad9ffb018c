"""What goes beside every message, whatever made it. Pure."""

from tailrace.message.base import Message

__all__ = ["ID", "headers_of"]

ID = "tailrace-id"
"""Name of the header with the message's id, by which a reader tells repeats."""


def headers_of(message: Message) -> tuple[tuple[str, str], ...]:
    """Return the message's headers, of which the first is its id."""
    headers = message.headers
    return headers if headers and headers[0][0] == ID else ((ID, message.id), *headers)
