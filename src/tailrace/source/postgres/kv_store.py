"""Keys and values in a PostgreSQL database: the table `kv`, made with the first put and captured from the first row."""

import threading
from collections.abc import Sequence

from tailrace.clock import Clock
from tailrace.source.expiry_loop import ExpiryLoop
from tailrace.source.key_value import Entry, PageLimits
from tailrace.source.postgres.kv_table import KvTable
from tailrace.source.postgres.lane import Lane
from tailrace.source.postgres.options import PostgresSettings

__all__ = ["PostgresKeyValueStore"]

_THREADS = 4
"""Reads, and writes, that run at one time. The server has several commits share a flush."""

_SWEEP_MAX = 256
"""Most entries removed in one transaction."""


class PostgresKeyValueStore:
    """Satisfies `tailrace.source.key_value.KeyValueStore`. `captured` says whether changes of the table are."""

    def __init__(self, url: str, settings: PostgresSettings, clock: Clock, *, captured: bool) -> None:
        self._clock = clock
        self._stopping = threading.Event()

        def connect() -> KvTable:
            return KvTable(url, settings, settings.publication if captured else None)

        self._reading = Lane(connect, _THREADS, "postgres-kv-read", self._stopping)
        self._writing = Lane(connect, _THREADS, "postgres-kv-write", self._stopping)
        self._expiry = ExpiryLoop(clock, self.sweep)

    async def get(self, keys: Sequence[bytes], bytes_max: int) -> list[bytes | None]:
        """Return the values of keys; see `KeyValueStore.get`."""
        now_us = self._clock.now_us()
        return await self._reading.call(lambda table: table.get(list(keys), now_us, bytes_max))

    async def put(self, entries: Sequence[Entry]) -> None:
        """Keep entries; see `KeyValueStore.put`."""
        listed = list(entries)
        await self._writing.call(lambda table: table.put(listed, self._clock.now_us()))
        self._expiry.note(listed)

    async def delete(self, key: bytes) -> bool:
        """Remove a key; see `KeyValueStore.delete`."""
        return await self._writing.call(lambda table: table.delete(key, self._clock.now_us()))

    async def scan(self, prefix: bytes, after: bytes | None, limits: PageLimits) -> list[Entry]:
        """Return a page of entries; see `KeyValueStore.scan`."""
        now_us = self._clock.now_us()
        return await self._reading.call(lambda table: table.scan(prefix, after, limits, now_us))

    async def sweep(self) -> int | None:
        """Remove the entries whose time is over, bit by bit. Return when the next one's is; None when no one's is."""
        while True:
            due_us = await self._reading.call(KvTable.next_expiry_us)
            if due_us is None or due_us > self._clock.now_us():
                return due_us
            await self._writing.call(lambda table: table.sweep(self._clock.now_us(), _SWEEP_MAX))

    async def run(self) -> None:
        """Sweep whenever an entry's time is over, until cancelled."""
        await self._expiry.run()

    async def close(self) -> None:
        """Finish the writes that are under way, and disconnect."""
        self._stopping.set()
        await self._writing.close(interrupt=False)
        await self._reading.close()
