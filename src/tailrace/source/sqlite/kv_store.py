"""Keys and values in an SQLite database: the table `kv`, made with the first put and captured from the first row on."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import apsw

from tailrace.clock import Clock
from tailrace.model.errors import KeyValueError
from tailrace.source.expiry_loop import ExpiryLoop
from tailrace.source.key_value import Entry, PageLimits
from tailrace.source.reader import Reader
from tailrace.source.sqlite.capture_setup import ensure_capture
from tailrace.source.sqlite.connection import connect, writing
from tailrace.source.sqlite.connection_thread import ConnectionThread, for_clients
from tailrace.source.sqlite.kv_table import KvTable
from tailrace.source.sqlite.write_group import Write, WriteGroup

__all__ = ["SqliteKeyValueStore"]

_T = TypeVar("_T")

_BUSY_TIMEOUT_MS = 5000
"""How long a write waits for a locked database."""

_SWEEP_MAX = 256
"""Most entries removed in one transaction; keeps write locks short."""


class SqliteKeyValueStore:
    """Satisfies `tailrace.source.key_value.KeyValueStore`. `reader` is who captures the database; None for nobody.

    Writes and reads have a thread each. Writes that come at one time share a transaction. Before a write, capture is
    fitted to the schema in the same transaction, so no change of the table escapes it.
    """

    def __init__(self, path: Path, reader: Reader | None, clock: Clock) -> None:
        self._reader = reader
        self._clock = clock

        def open_() -> apsw.Connection:
            return connect(path, busy_timeout_ms=_BUSY_TIMEOUT_MS)

        self._reading = ConnectionThread(open_, "sqlite-kv-read")
        self._writing = ConnectionThread(open_, "sqlite-kv-write")
        self._writes = WriteGroup(self._writing, self._transact)
        # Versions of the schema, and whether they have the table: as each thread has met it last.
        self._seen: tuple[int, bool] | None = None
        self._fitted: tuple[int, bool] | None = None
        self._expiry = ExpiryLoop(clock, self.sweep)

    async def get(self, keys: Sequence[bytes], bytes_max: int) -> list[bytes | None]:
        """Return the values of keys; see `KeyValueStore.get`."""
        now_us = self._clock.now_us()
        return await self._read(lambda table: table.get(list(keys), now_us, bytes_max), [None] * len(keys))

    async def put(self, entries: Sequence[Entry]) -> None:
        """Keep entries; see `KeyValueStore.put`."""
        listed = list(entries)
        size_bytes = sum(len(entry.key) + len(entry.value) for entry in listed)

        def run(connection: apsw.Connection) -> None:
            KvTable(connection).put(listed, self._clock.now_us())

        await self._writes.run(_Put(run, size_bytes))
        self._expiry.note(listed)

    async def delete(self, key: bytes) -> bool:
        """Remove a key; see `KeyValueStore.delete`."""
        return bool(await self._writes.run(Write(lambda found: KvTable(found).delete(key, self._clock.now_us()))))

    async def scan(self, prefix: bytes, after: bytes | None, limits: PageLimits) -> list[Entry]:
        """Return a page of entries; see `KeyValueStore.scan`."""
        now_us = self._clock.now_us()
        return await self._read(lambda table: table.scan(prefix, after, limits, now_us), [])

    async def sweep(self) -> int | None:
        """Remove the entries whose time is over, bit by bit. Return when the next one's is; None when no one's is.

        Where there is nothing to remove, nothing is locked.
        """
        while True:
            due_us = await self._read(KvTable.next_expiry_us, None)
            if due_us is None or due_us > self._clock.now_us():
                return due_us
            await self._writes.run(Write(lambda found: KvTable(found).sweep(self._clock.now_us(), _SWEEP_MAX)))

    async def run(self) -> None:
        """Sweep whenever an entry's time is over, until cancelled."""
        await self._expiry.run()

    async def close(self) -> None:
        """Finish the writes that are under way, and disconnect."""
        await self._writes.close()
        await self._writing.close()
        await self._reading.close()

    async def _read(self, use: Callable[[KvTable], _T], nothing: _T) -> _T:
        """Return what `use` finds in one moment; `nothing` where there is no table."""

        def read(connection: apsw.Connection) -> _T:
            table = KvTable(connection)
            connection.execute("BEGIN")
            try:
                version = int(connection.pragma("schema_version"))
                if self._seen is None or self._seen[0] != version:
                    self._seen = (version, table.exists())
                return use(table) if self._seen[1] else nothing
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")

        return await self._reading.submit(read)

    def _transact(self, connection: apsw.Connection, writes: Sequence[Write]) -> list[Any]:
        """Run writes in one transaction. Without a table only a put does anything: it makes one."""
        try:
            with for_clients(), writing(connection):
                fitted = self._fit(connection, create=any(isinstance(write, _Put) for write in writes))
                results = [write.run(connection) if fitted[1] else None for write in writes]
        except (apsw.ConstraintError, apsw.ReadOnlyError, apsw.SQLError) as error:
            raise KeyValueError(f"the database rejected the write: {error}") from error
        self._fitted = fitted
        return results

    def _fit(self, connection: apsw.Connection, *, create: bool) -> tuple[int, bool]:
        """Have the table and capture fit the schema. Return the schema's version, and whether there is a table."""
        version = int(connection.pragma("schema_version"))
        if self._fitted is not None and self._fitted[0] == version and (self._fitted[1] or not create):
            return self._fitted
        table = KvTable(connection)
        exists = table.exists()
        if create:
            table.create()
            exists = True
        if exists and self._reader is not None:
            ensure_capture(connection, self._reader)
        return int(connection.pragma("schema_version")), exists


class _Put(Write, frozen=True):
    """A write that wants the table."""
