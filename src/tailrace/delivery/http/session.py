"""A session: one connection and the streams that it carries, which take turns at writing."""

import asyncio
from collections.abc import Awaitable, Callable

from tailrace.delivery.http.framing import Framing
from tailrace.delivery.http.stream import Ending, Stream, StreamTools
from tailrace.delivery.http.stream_options import USUAL, StreamOptions
from tailrace.subscription.feed import Feed

__all__ = ["Session", "Write"]

Write = Callable[[bytes], Awaitable[None]]
"""Sends bytes over a connection; returns when the connection can take more."""


class Session:
    """Serves feeds over one connection, each in a task of its own.

    They take turns, one bounded piece each, in the order in which they asked; and a piece is only made when its turn
    has come. So streams share a connection fairly, and a client that does not read costs one piece, however many
    streams it has.
    """

    def __init__(self, tools: StreamTools, framing: Framing, write: Write, asked: StreamOptions = USUAL) -> None:
        self._tools = tools
        self._framing = framing
        self._write = write
        self._asked = asked
        self._turn = asyncio.Lock()

    async def serve(self, feed: Feed) -> Ending:
        """Write the records of a feed until it ends."""
        stream = Stream(self._tools, feed, self._framing, self._asked)
        gauge, turns = self._tools.metrics.feeds_open.labels(self._framing.wire.value), self._tools.presenter.turns
        with gauge.track_inprogress(), turns.joined():
            while True:
                await stream.wait()
                async with self._turn:
                    records = await stream.take()
                    if records:
                        await self._write(records)
                if stream.ending is not None:
                    return stream.ending
                await stream.sent()
                await asyncio.sleep(0)  # a write that did not wait must not keep others from their turn

    async def say(self, data: bytes) -> None:
        """Write something between the records."""
        async with self._turn:
            await self._write(data)
