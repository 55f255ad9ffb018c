"""One gRPC call as its handler sees it, whatever server carries it."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from enum import IntEnum
from typing import Protocol

from msgspec import Struct

from tailrace.access.principal import Capability, Principal

__all__ = [
    "BidiHandler",
    "GrpcCall",
    "Metadata",
    "Method",
    "Service",
    "StatusCode",
    "StatusError",
    "StreamHandler",
    "UnaryHandler",
    "prefixed",
]

Metadata = Sequence[tuple[str, str | bytes]]
"""Names in lower case; values of names that end in `-bin` are bytes, all others text."""


class StatusCode(IntEnum):
    """The status codes of gRPC."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


class StatusError(Exception):
    """Ends a call with a status other than OK. Raised by handlers; the server sends it, and `trailing` with it."""

    def __init__(self, code: StatusCode, message: str, trailing: Metadata = ()) -> None:
        super().__init__(f"{code.name}: {message}")
        self.code = code
        self.message = message
        self.trailing = tuple(trailing)


class GrpcCall(Protocol):
    """One call under way. When its client goes, cancels or runs out of time, the handler's task is cancelled."""

    path: str
    """`/package.Service/Method`."""

    metadata: Metadata
    """What the client sent with the call."""

    peer: str
    """Address of the client, for diagnostics."""

    principal: Principal
    """Who calls."""

    def header(self, name: str) -> str | None:
        """Return the first text value of a name in the client's metadata."""

    def begin(self, metadata: Metadata = ()) -> None:
        """Send the initial metadata now, once and before the first write, which does it where nobody did."""

    async def write(self, messages: bytes | memoryview) -> None:
        """Send messages, each with its length before it (`prefixed`), as many as are in the bytes.

        Returns when the connection can take more; what waits to be sent is bounded. The bytes must not change after.

        Raises:
            StatusError: The call has ended already.
        """


UnaryHandler = Callable[[GrpcCall, bytes], Awaitable[bytes]]
"""Takes the request's message and returns the answer's."""

StreamHandler = Callable[[GrpcCall, bytes], Awaitable[None]]
"""Takes the request's message and writes answers; returning ends the call with OK."""

BidiHandler = Callable[[GrpcCall, AsyncIterator[bytes]], Awaitable[None]]
"""Takes the request's messages as they come and writes answers; returning ends the call with OK."""


class Method(Struct, frozen=True):
    """One method. Exactly one of the handlers is set. `capability` is what the caller needs; None for none."""

    unary: UnaryHandler | None = None
    stream: StreamHandler | None = None
    bidi: BidiHandler | None = None
    capability: Capability | None = Capability.READ
    open_to_all: bool = False
    """Also for callers who have not said who they are: health checks."""

    counted: bool = False
    """A call counts as one of the streams that a principal may have. Feeds count themselves."""


class Service(Struct, frozen=True):
    """One service: its full name, its methods by name, and for reflection the name of the file that declares it."""

    name: str
    methods: Mapping[str, Method]
    file: str = ""


def prefixed(message: bytes) -> bytes:
    """Return a message with its gRPC prefix: not compressed, and its length."""
    return b"\x00" + len(message).to_bytes(4, "big") + message
