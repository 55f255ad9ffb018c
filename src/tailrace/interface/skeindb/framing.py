"""How the records of a stream are put on a connection that serves one subscription or many. Pure.

A record is a change, or a control record between changes. With one subscription the encoded changes go out as they
are. With many, each record names its subscription, and the id of a server-sent event tells the place of all of them:
`1:40,2f:7` says that subscription 1 has been sent everything up to offset 40 and subscription 0x2f up to 7.
"""

import re
from typing import Protocol

from tailrace.delivery.encoded import Piece
from tailrace.delivery.frame import frame_of, payloads
from tailrace.delivery.view import Wire
from tailrace.interface.skeindb.present import SSE, WS
from tailrace.model.errors import InvalidRequestError
from tailrace.model.number import Offset
from tailrace.model.subscription import SubscriptionId, sub_id_of

__all__ = ["Framing", "SseFraming", "SseManyFraming", "WsFraming", "WsManyFraming", "parse_places"]

_COMMENT = b":\n\n"
_ID = b"id: "
_NEXT_ID = b"\n\nid: "
_DATA = b"\ndata: {"
"""Where a record has its id and its data. A line break can stand in neither, so these are found by searching."""

_PLACE = re.compile(r"([0-9a-f]{1,16}):([0-9]{1,20})", re.ASCII)
_PLACES_CHARACTERS_MAX = 4096
"""Longest id that is looked at; that of as many subscriptions as a connection may have is shorter."""


class Framing(Protocol):
    """Puts the records of a connection into bytes, in the order in which they are sent."""

    @property
    def wire(self) -> Wire:
        """Return how changes are to be encoded for it."""

    @property
    def silence(self) -> bytes:
        """Return what is sent to keep a silent connection open."""

    def changes(self, subscription_id: SubscriptionId, piece: Piece) -> bytes:
        """Return encoded changes for the connection."""

    def control(self, subscription_id: SubscriptionId, event: str, data: bytes, offset: Offset) -> bytes:
        """Return a control record: everything up to `offset` was sent before it. `data` is a JSON object."""

    def answer(self, subscription_id: SubscriptionId, event: str, data: bytes) -> bytes:
        """Return a record that has no place in the log, and so no id. `data` is a JSON object with members."""


class SseFraming:
    """Server-sent events of one subscription."""

    wire = SSE
    silence = _COMMENT

    def changes(self, _subscription_id: SubscriptionId, piece: Piece) -> bytes:
        """Return the changes as they are."""
        return piece.data

    def control(self, _subscription_id: SubscriptionId, event: str, data: bytes, offset: Offset) -> bytes:
        """Return a control record."""
        return b"id: %d\nevent: %s\ndata: %s\n\n" % (offset, event.encode(), data)

    def answer(self, _subscription_id: SubscriptionId, event: str, data: bytes) -> bytes:
        """Return a record without an id."""
        return b"event: %s\ndata: %s\n\n" % (event.encode(), data)


class SseManyFraming:
    """Server-sent events of many subscriptions; `places` says where each begins."""

    wire = SSE
    silence = _COMMENT

    def __init__(self, places: dict[SubscriptionId, Offset]) -> None:
        self._places = dict(places)

    def changes(self, subscription_id: SubscriptionId, piece: Piece) -> bytes:
        """Return the changes with the id of all subscriptions and the name of theirs."""
        self._places[subscription_id] = piece.through
        if not piece.count:
            return b""
        front = self._front(subscription_id)
        ids = front + piece.data[len(_ID) :].replace(_NEXT_ID, b"\n\n" + front)
        return ids.replace(_DATA, b'%s"sub_id":"%s",' % (_DATA, sub_id_of(subscription_id).encode()))

    def control(self, subscription_id: SubscriptionId, event: str, data: bytes, offset: Offset) -> bytes:
        """Return a control record."""
        self._places[subscription_id] = offset
        return b"%s%d\nevent: %s\ndata: %s\n\n" % (self._front(subscription_id), offset, event.encode(), data)

    def answer(self, subscription_id: SubscriptionId, event: str, data: bytes) -> bytes:
        """Return a record without an id."""
        return b'event: %s\ndata: {"sub_id":"%s",%s\n\n' % (
            event.encode(),
            sub_id_of(subscription_id).encode(),
            data[1:],
        )

    def _front(self, subscription_id: SubscriptionId) -> bytes:
        """Return the id of a record up to the offset of its own subscription, which comes last."""
        others = [b"%x:%d," % place for place in self._places.items() if place[0] != subscription_id]
        return b"%s%s%x:" % (_ID, b"".join(others), subscription_id)


class WsFraming:
    """WebSocket frames of one subscription."""

    wire = WS
    silence = b""

    def changes(self, _subscription_id: SubscriptionId, piece: Piece) -> bytes:
        """Return the changes as they are."""
        return piece.data

    def control(self, _subscription_id: SubscriptionId, event: str, data: bytes, offset: Offset) -> bytes:
        """Return a control record."""
        return frame_of(b'{"id":%d,"event":"%s","data":%s}' % (offset, event.encode(), data))

    def answer(self, _subscription_id: SubscriptionId | None, event: str, data: bytes) -> bytes:
        """Return the answer to a frame of the client. It has no place in the stream, so it has no id."""
        return frame_of(b'{"event":"%s","data":%s}' % (event.encode(), data))


class WsManyFraming:
    """WebSocket frames of many subscriptions."""

    wire = WS
    silence = b""

    def changes(self, subscription_id: SubscriptionId, piece: Piece) -> bytes:
        """Return the changes, each with the name of its subscription."""
        front = _named(subscription_id)
        return b"".join([frame_of(front + text[1:]) for text in payloads(piece.data)])

    def control(self, subscription_id: SubscriptionId, event: str, data: bytes, offset: Offset) -> bytes:
        """Return a control record."""
        front = _named(subscription_id)
        return frame_of(b'%s"id":%d,"event":"%s","data":%s}' % (front, offset, event.encode(), data))

    def answer(self, subscription_id: SubscriptionId | None, event: str, data: bytes) -> bytes:
        """Return the answer to a frame of the client."""
        front = b"{" if subscription_id is None else _named(subscription_id)
        return frame_of(b'%s"event":"%s","data":%s}' % (front, event.encode(), data))


def parse_places(text: str) -> dict[SubscriptionId, Offset]:
    """Return the places that the id of a server-sent event of many subscriptions tells.

    Raises:
        InvalidRequestError: It is no such id.
    """
    matches = [_PLACE.fullmatch(item) for item in text[:_PLACES_CHARACTERS_MAX].split(",")]
    if len(text) > _PLACES_CHARACTERS_MAX or None in matches:
        raise InvalidRequestError("invalid Last-Event-ID header")
    return {SubscriptionId(int(match[1], 16)): Offset(int(match[2])) for match in matches if match}


def _named(subscription_id: SubscriptionId) -> bytes:
    return b'{"sub_id":"%s",' % sub_id_of(subscription_id).encode()
