"""What a client may say on a WebSocket: JSON objects with a `type`. Pure.

`sub_id` may be left out on the connection of one subscription; on one of many it is needed.
"""

from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from tailrace.model.errors import InvalidRequestError

__all__ = ["Ack", "Command", "Pause", "Resume", "Subscribe", "Unsubscribe", "decode_command"]

_OffsetParam = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class _Command(Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag=str.lower, kw_only=True):
    sub_id: str | None = None


class Ack(_Command, frozen=True, kw_only=True):
    """Move the cursor to `offset`."""

    offset: _OffsetParam


class Pause(_Command, frozen=True):
    """Hold back changes."""


class Resume(_Command, frozen=True):
    """Send changes again."""


class Subscribe(_Command, frozen=True, kw_only=True):
    """Begin to send a subscription; only on a connection of many."""

    from_offset: _OffsetParam | None = None


class Unsubscribe(_Command, frozen=True):
    """No longer send a subscription, which itself stays; only on a connection of many."""


Command = Ack | Pause | Resume | Subscribe | Unsubscribe

_DECODER: msgspec.json.Decoder[Command] = msgspec.json.Decoder(Command)
_BROKEN = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def decode_command(text: str | None) -> Command:
    """Return the command in a text frame; None stands for a frame that is not of text.

    Raises:
        InvalidRequestError: It is none; the message names the member at fault.
    """
    if text is None:
        raise InvalidRequestError("send text frames")
    try:
        return _DECODER.decode(text)
    except _BROKEN as error:
        raise InvalidRequestError(f"not a command: {error}") from error
