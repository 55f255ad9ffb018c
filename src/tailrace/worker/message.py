"""What the main process and a worker say to each other. Pure.

Each message is a JSON object behind its length. JSON and not a binary form: filters of subscriptions hold literals of
clients, among them numbers of any size, and are kept as JSON everywhere else.
"""

import struct
from collections.abc import Iterator
from enum import StrEnum
from typing import TypeVar

import msgspec
from msgspec import Struct

from tailrace.delivery.http.hand_over import Interval, StreamKind
from tailrace.log.state import State
from tailrace.model.errors import (
    AccessError,
    LogClosedError,
    TailraceError,
    UnauthenticatedError,
    UnknownSubscriptionError,
)
from tailrace.model.number import Offset
from tailrace.model.subscription import Subscription, SubscriptionId
from tailrace.subscription.restrict import Identity

__all__ = [
    "FROM_WORKER",
    "TO_WORKER",
    "Acknowledge",
    "Answered",
    "ChangeSubscription",
    "Cut",
    "EndFeed",
    "Ended",
    "Figures",
    "FollowedSource",
    "Framer",
    "FromWorker",
    "GivenFeed",
    "Gone",
    "Grown",
    "Measure",
    "PauseFeed",
    "Ready",
    "Reason",
    "Say",
    "ServeFeeds",
    "ServeInterval",
    "SetUp",
    "Stop",
    "ToWorker",
    "framed",
    "reason_of",
]

_HEADER = struct.Struct("<I?")
_MESSAGE_BYTES_MAX = 64 << 20
"""Largest message: a subscription is at most as large as the request that made it."""

_T = TypeVar("_T")


class Reason(StrEnum):
    """Why a feed ends that another process runs."""

    CLOSED = "closed"
    STOPPED = "stopped"
    UNAUTHENTICATED = "unauthenticated"
    EXPIRED = "expired"

    def error(self, subscription: Subscription) -> TailraceError:
        """Return the error that the feed ends with."""
        match self:
            case Reason.CLOSED:
                return UnknownSubscriptionError(f"sub-{subscription.id}")
            case Reason.STOPPED:
                return LogClosedError("the service stops")
            case Reason.UNAUTHENTICATED:
                return UnauthenticatedError()
            case Reason.EXPIRED:
                return UnauthenticatedError(expired=True)


def reason_of(error: TailraceError) -> Reason:
    """Return why a feed ends that is to end with an error."""
    match error:
        case UnknownSubscriptionError():
            return Reason.CLOSED
        case UnauthenticatedError(expired=True):
            return Reason.EXPIRED
        case AccessError():
            return Reason.UNAUTHENTICATED
        case _:
            return Reason.STOPPED


# ---- what the main process says


class FollowedSource(Struct, frozen=True):
    """A source as a worker knows it: where its log is, and what SQL its predicates are in."""

    directory: str
    dialect: str


class SetUp(Struct, frozen=True, tag=True):
    """The first message."""

    sources: dict[str, FollowedSource]
    origins: list[str]
    """Web pages that may read answers."""

    retention_changes: int | None
    """Scale of the pressure states."""

    ring_changes: int


class Grown(Struct, frozen=True, tag=True):
    """How far the log of a source is published."""

    source: str
    state: State
    schemas: int


class GivenFeed(Struct, frozen=True):
    """An open feed to be run: of which subscription, from where, and what its reader may see."""

    feed: int
    subscription: Subscription
    after: Offset
    restriction: Identity | None


class ServeFeeds(Struct, frozen=True, tag=True):
    """Serve feeds on the connection that comes along, to the request `head` on it."""

    job: int
    head: bytes
    kind: StreamKind
    feeds: list[GivenFeed]


class ServeInterval(Struct, frozen=True, tag=True):
    """Send changes in bulk on the connection that comes along, to the request `head` on it."""

    job: int
    head: bytes
    interval: Interval


class Cut(Struct, frozen=True, tag=True):
    """Close the connection of a job at once."""

    job: int


class PauseFeed(Struct, frozen=True, tag=True):
    """Hold back the changes of a feed, or no longer."""

    feed: int
    paused: bool


class EndFeed(Struct, frozen=True, tag=True):
    """End a feed."""

    feed: int
    reason: Reason


class ChangeSubscription(Struct, frozen=True, tag=True):
    """A subscription is another now."""

    subscription: Subscription


class Answered(Struct, frozen=True, tag=True):
    """The answer to what a worker has asked; `failed` where it could not be done."""

    ask: int
    data: bytes = b""
    failed: Reason | None = None


class Measure(Struct, frozen=True, tag=True):
    """Send figures now."""


class Stop(Struct, frozen=True, tag=True):
    """Finish what is being sent, and end."""


ToWorker = (
    SetUp
    | Grown
    | ServeFeeds
    | ServeInterval
    | Cut
    | PauseFeed
    | EndFeed
    | ChangeSubscription
    | Answered
    | Measure
    | Stop
)

# ---- what a worker says


class Ready(Struct, frozen=True, tag=True):
    """The worker is set up."""


class Acknowledge(Struct, frozen=True, tag=True):
    """Move the cursor of a subscription."""

    ask: int
    subscription: SubscriptionId
    offset: Offset


class Say(Struct, frozen=True, tag=True):
    """What the client of a job has said over its WebSocket; None is no text."""

    ask: int
    job: int
    text: str | None


class Ended(Struct, frozen=True, tag=True):
    """The request of a job is answered to its end."""

    job: int


class Gone(Struct, frozen=True, tag=True):
    """The connection of a job is closed."""

    job: int


class Figures(Struct, frozen=True, tag=True):
    """What happened since the last figures."""

    counts: list[tuple[str, dict[str, str], float]]
    """By how much each counter has grown, by its name in `Metrics` and its labels."""

    lags: dict[str, tuple[Offset, float, float]]
    """The newest offset delivered of each source, and how long it took from the log, and from its commit."""

    places: dict[int, Offset]
    """How far feeds are that have moved."""

    measured: bool = False
    """Whether they were asked for."""


FromWorker = Ready | Acknowledge | Say | Ended | Gone | Figures

TO_WORKER: msgspec.json.Decoder[ToWorker] = msgspec.json.Decoder(ToWorker)
FROM_WORKER: msgspec.json.Decoder[FromWorker] = msgspec.json.Decoder(FromWorker)


def framed(message: Struct, *, with_connection: bool = False) -> bytes:
    """Return a message as it goes over a channel, and whether a connection goes along."""
    encoded = msgspec.json.encode(message)
    return _HEADER.pack(len(encoded), with_connection) + encoded


class Framer:
    """Cuts what comes over a channel into messages."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[bytes, bool]]:
        """Take the next bytes; yield each message that is whole, and whether a connection comes along with it.

        Raises:
            ValueError: A message is larger than any that is ever sent.
        """
        self._data += data
        while len(self._data) >= _HEADER.size:
            size, with_connection = _HEADER.unpack_from(self._data)
            if size > _MESSAGE_BYTES_MAX:
                raise ValueError(f"a message of {size} bytes")
            end = _HEADER.size + size
            if len(self._data) < end:
                return
            message = bytes(self._data[_HEADER.size : end])
            del self._data[:end]
            yield message, with_connection
