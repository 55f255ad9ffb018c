"""A gRPC call in memory, for tests of handlers without a server."""

import asyncio
from collections.abc import AsyncIterator, Mapping

from tailrace.access.principal import ANONYMOUS, Principal
from tailrace.delivery.grpc.call import Metadata

__all__ = ["MemoryCall", "messages_of"]


class MemoryCall:
    """Keeps what a handler sends. `hold` makes writes wait, as for a client that does not read; `release` ends that."""

    def __init__(self, metadata: Mapping[str, str] | None = None, principal: Principal = ANONYMOUS) -> None:
        self.path = ""
        self.peer = "memory"
        self.metadata: Metadata = tuple((metadata or {}).items())
        self.principal = principal
        self.initial: dict[str, str | bytes] | None = None
        self.writes: list[bytes] = []
        self._changed = asyncio.Event()
        self._free = asyncio.Event()
        self._free.set()

    def header(self, name: str) -> str | None:
        """Return the first text value of a name in the client's metadata."""
        return next((value for key, value in self.metadata if key == name and isinstance(value, str)), None)

    def begin(self, metadata: Metadata = ()) -> None:
        """Keep the initial metadata."""
        assert self.initial is None
        self.initial = dict(metadata)
        self._changed.set()

    async def write(self, messages: bytes) -> None:
        """Keep messages."""
        await self._free.wait()
        if self.initial is None:
            self.begin()
        self.writes.append(bytes(messages))
        self._changed.set()
        await asyncio.sleep(0)

    def hold(self) -> None:
        """Make the next write wait."""
        self._free.clear()

    def release(self) -> None:
        """Let writes go on."""
        self._free.set()

    async def begun(self) -> dict[str, str | bytes]:
        """Return the initial metadata when they were sent."""
        while self.initial is None:
            self._changed.clear()
            await self._changed.wait()
        return self.initial

    async def messages(self) -> AsyncIterator[bytes]:
        """Yield the messages that were and will be written, for ever."""
        place = 0
        while True:
            while place < len(self.writes):
                for message in messages_of(self.writes[place]):
                    yield message
                place += 1
            self._changed.clear()
            await self._changed.wait()


def messages_of(data: bytes) -> list[bytes]:
    """Return the messages in some bytes of a stream."""
    messages = []
    while data:
        end = 5 + int.from_bytes(data[1:5], "big")
        assert data[0] == 0
        assert len(data) >= end
        messages.append(data[5:end])
        data = data[end:]
    return messages
