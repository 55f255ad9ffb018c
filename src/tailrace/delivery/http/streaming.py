"""What all streams over HTTP share: how they are refused, how a WebSocket is written and closed, why they end."""

from enum import StrEnum
from http import HTTPStatus
from typing import Protocol

from msgspec import Struct
from starlette.responses import PlainTextResponse
from starlette.types import Send

from tailrace.delivery.http.hand_over import HandOver
from tailrace.delivery.http.options import HttpOptions
from tailrace.delivery.http.ws_protocol import FRAMES
from tailrace.delivery.presenter import Presenter
from tailrace.delivery.sender import SenderTools, Write
from tailrace.metrics import Metrics
from tailrace.model.errors import (
    AccessError,
    BehindHorizonError,
    InvalidRequestError,
    LogClosedError,
    NotFoundError,
    QuotaError,
    TailraceError,
    UnauthenticatedError,
    UnknownSubscriptionError,
)
from tailrace.subscription.access import Scopes
from tailrace.subscription.service import SubscriptionService

__all__ = [
    "CLOSE_CODES",
    "REFUSED",
    "STREAMS_MAX",
    "Ending",
    "SessionTools",
    "StreamTools",
    "close",
    "ending_of",
    "refusal_of",
    "writer_to",
]

STREAMS_MAX = 64
"""Most subscriptions on one connection."""


class SessionTools(SenderTools, Protocol):
    """What serves feeds over HTTP that are open already."""

    @property
    def options(self) -> HttpOptions:
        """Return the settings."""
        ...


class StreamTools(Struct, frozen=True):
    """What all streams over HTTP share. Who may open which feed is decided by `scopes`; see there."""

    scopes: Scopes
    presenter: Presenter
    metrics: Metrics
    options: HttpOptions
    hand_over: HandOver | None = None
    """Other processes that serve streams; None where all are served here."""

    @property
    def service(self) -> SubscriptionService:
        """Return the service, for feeds that are open already."""
        return self.scopes.service


class Ending(StrEnum):
    """Why a stream ended."""

    RESNAPSHOT = "resnapshot"
    """Its place was lost: its last record was a `resnapshot`."""

    CLOSED = "closed"
    """The subscription was closed."""

    STOPPED = "stopped"
    """The server stops."""

    FAILED = "error"
    """The subscription cannot go on: its last record was an `error`."""

    UNAUTHORIZED = "unauthorized"
    """The client's credentials are no longer good: its last record was an `error`."""

    FORBIDDEN = "forbidden"
    """What the client may see of a table is unknown: its last record was an `error`."""


def ending_of(error: TailraceError) -> Ending:
    """Return why a stream ended whose feed ended with an error."""
    match error:
        case BehindHorizonError():
            return Ending.RESNAPSHOT
        case UnknownSubscriptionError():
            return Ending.CLOSED
        case LogClosedError():
            return Ending.STOPPED
        case UnauthenticatedError():
            return Ending.UNAUTHORIZED
        case AccessError():
            return Ending.FORBIDDEN
        case _:
            return Ending.FAILED


CLOSE_CODES = {
    Ending.RESNAPSHOT: 1000,
    Ending.CLOSED: 1000,
    Ending.STOPPED: 1001,
    Ending.FAILED: 1011,
    Ending.UNAUTHORIZED: 3000,
    Ending.FORBIDDEN: 3003,
}
"""Close code of a connection by why its stream ended; the reason tells the same in a word."""


REFUSED = (NotFoundError, InvalidRequestError, AccessError, LogClosedError)
"""Why a stream may not even begin."""


def refusal_of(error: NotFoundError | InvalidRequestError | AccessError | LogClosedError) -> PlainTextResponse:
    """Return the answer to a request for a stream that cannot be."""
    match error:
        case QuotaError():
            return PlainTextResponse(str(error), HTTPStatus.TOO_MANY_REQUESTS)
        case AccessError():
            return PlainTextResponse(str(error), HTTPStatus.FORBIDDEN)
        case NotFoundError():
            return PlainTextResponse("unknown sub_id", HTTPStatus.NOT_FOUND)
        case InvalidRequestError():
            return PlainTextResponse(str(error), HTTPStatus.BAD_REQUEST)
        case LogClosedError():
            return PlainTextResponse("the server stops", HTTPStatus.SERVICE_UNAVAILABLE)


def writer_to(send: Send) -> Write:
    """Return what writes frames to a connection."""

    async def write(frames: bytes) -> None:
        await send({"type": FRAMES, "data": frames})

    return write


async def close(send: Send, ending: Ending) -> None:
    """Close a connection whose stream has ended."""
    await send({"type": "websocket.close", "code": CLOSE_CODES[ending], "reason": str(ending)})
