"""Handing a stream over to another process of the server: what endpoints need of whoever does it.

An endpoint opens what is asked for, with all checks, and then offers it here. What is taken is served by the other
process, on the connection of the request; what was opened stays open here until that has ended.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from enum import StrEnum
from typing import Protocol

from msgspec import Struct
from starlette.types import Scope

from tailrace.model.number import Offset, SchemaId
from tailrace.model.wanted import Conditions
from tailrace.subscription.feed import Feed

__all__ = ["Answer", "HandOver", "Interval", "StreamKind"]

Answer = Callable[[str | None], Awaitable[bytes]]
"""Carries out what a client says on a WebSocket, None for what is no text; returns the frames to answer with."""


class StreamKind(StrEnum):
    """How feeds are put on a connection."""

    SSE = "sse"
    SSE_MANY = "sse_many"
    WS = "ws"


class Interval(Struct, frozen=True):
    """Changes of a source that are read in bulk: those after `after`, through `through`, of some schema versions."""

    source: str
    after: Offset
    through: Offset
    schemas: frozenset[SchemaId] | None
    """None for all."""

    compression: str
    conditions: Conditions | None = None
    """What changes have to meet, as far as it can be seen without a look at their images; None for nothing."""


class HandOver(Protocol):
    """The other processes that serve streams."""

    async def feeds(self, scope: Scope, kind: StreamKind, feeds: Sequence[Feed], answer: Answer | None = None) -> bool:
        """Have open feeds served, and return True when they have ended; False where they are to be served here.

        The feeds belong to no other reader meanwhile. `answer` is for a WebSocket.
        """

    async def measure(self) -> None:
        """Have what the others have counted be in the metrics."""

    async def interval(self, scope: Scope, interval: Interval, credentials: asyncio.Future[None]) -> bool:
        """Have changes sent in bulk, and return True when that has ended; False where it is to be done here.

        It is cut when `credentials` are done.
        """
