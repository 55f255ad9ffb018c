"""One session over an event stream that gets itself back when the connection breaks."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable

import httpx

from tailrace.client.errors import ConnectionFailed
from tailrace.client.sse import SseEvent, SseParser
from tailrace.client.transport import Transport
from tailrace.retry import Retry

__all__ = ["EventStream"]

logger = logging.getLogger(__name__)


class EventStream:
    """Reads events in order and continues after the last one on each reconnect. For one task at a time.

    Cancelling `next` loses no event: the connection is given up and the following call goes on where the last ended.
    """

    def __init__(
        self,
        transport: Transport,
        path: str,
        last_id: str = "",
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.last_id = last_id
        """Id of the newest event read."""

        self._transport = transport
        self._path = path
        self._sleep = sleep
        self._answer: httpx.Response | None = None
        self._pieces: AsyncIterator[bytes] | None = None
        self._parser = SseParser()
        options = transport.options
        self._retry = Retry(options.backoff, outage_s_max=options.outage_s_max)

    async def next(self) -> list[SseEvent]:
        """Return the events that come next, at least one.

        Raises:
            ConnectionFailed: The server was away for longer than the options allow.
            Refused: The server does not give the stream: no such subscription, no valid token, no such place.
            BadAnswer: What comes is no stream of events.
        """
        while True:
            try:
                piece = await self._read()
                events = self._parser.feed(piece)
            except ConnectionFailed as error:
                await self._pause(error)
                continue
            except BaseException:
                await self.aclose()
                raise
            self._retry.recovered()
            self.last_id = self._parser.last_id
            if events:
                return events

    async def aclose(self) -> None:
        """Close the connection. A following `next` makes a new one."""
        answer, self._answer, self._pieces = self._answer, None, None
        if answer is not None:
            await answer.aclose()

    async def _read(self) -> bytes:
        """Return the next bytes; connect where there is no connection."""
        if self._pieces is None:
            self._answer = await self._transport.open(self._path, self.last_id)
            self._pieces = self._answer.aiter_raw()
            self._parser = SseParser(self.last_id, self._transport.options.event_bytes_max)
        with self._transport.reached():
            async for piece in self._pieces:
                return piece
        raise ConnectionFailed("the server ended the stream")

    async def _pause(self, error: ConnectionFailed) -> None:
        """Wait before the next attempt, longer each time; give up when the outage lasts too long."""
        await self.aclose()
        pause_s = self._retry.failed(error)
        logger.info("stream lost", extra={"path": self._path, "failures": self._retry.failures, "pause_s": pause_s})
        await self._sleep(pause_s)
