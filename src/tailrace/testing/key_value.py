"""Keys and values in memory."""

import asyncio
from collections.abc import Sequence

from tailrace.clock import Clock
from tailrace.model.errors import ResultTooLargeError
from tailrace.source.key_value import Entry, PageLimits

__all__ = ["MemoryKeyValueStore"]

_US_PER_S = 1_000_000


class MemoryKeyValueStore:
    """Keeps entries in a dictionary. Nothing captures it, and nothing sweeps it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._entries: dict[bytes, tuple[bytes, int | None]] = {}

    async def get(self, keys: Sequence[bytes], bytes_max: int) -> list[bytes | None]:
        """Return the values of keys."""
        values = [self._value(key) for key in keys]
        if sum(len(value or b"") for value in values) > bytes_max:
            raise ResultTooLargeError(f"the values have more than {bytes_max} bytes: ask for fewer keys")
        return values

    async def put(self, entries: Sequence[Entry]) -> None:
        """Keep entries."""
        now_us = self._clock.now_us()
        for entry in entries:
            expires_us = now_us + entry.ttl_s * _US_PER_S if entry.ttl_s else None
            self._entries[entry.key] = (entry.value, expires_us)

    async def delete(self, key: bytes) -> bool:
        """Remove a key."""
        existed = self._value(key) is not None
        self._entries.pop(key, None)
        return existed

    async def scan(self, prefix: bytes, after: bytes | None, limits: PageLimits) -> list[Entry]:
        """Return a page of entries."""
        page: list[Entry] = []
        size_bytes = 0
        for key in sorted(self._entries):
            value = self._value(key)
            if value is None or not key.startswith(prefix) or (after is not None and key <= after):
                continue
            size_bytes += len(key) + len(value)
            if len(page) == limits.entries_max or (page and size_bytes > limits.bytes_max):
                break
            page.append(Entry(key, value))
        return page

    async def run(self) -> None:
        """Wait until cancelled."""
        await asyncio.Event().wait()

    async def close(self) -> None:
        """Forget everything."""
        self._entries.clear()

    def _value(self, key: bytes) -> bytes | None:
        value, expires_us = self._entries.get(key, (None, None))
        return None if expires_us is not None and expires_us <= self._clock.now_us() else value
