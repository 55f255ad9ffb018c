"""API keys in the metadata database. A key is kept by its hash, never changed, and removed when it is revoked."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct
from sqlalchemy import Connection, delete, func, insert, select

from tailrace.clock import Clock
from tailrace.meta.store import MetaStore
from tailrace.meta.table import api_key

__all__ = ["KeyStore", "StoredKey"]


class StoredKey(Struct, frozen=True):
    """One API key as it is kept. `grant` is what it gives, as JSON."""

    id: int
    hash: str
    name: str
    grant: str
    created_time_us: int
    expires_time_us: int | None


class KeyStore:
    """The API keys of a metadata database. What a method wrote is durable when it returns; other processes see it."""

    def __init__(self, store: MetaStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def add(self, hash_: str, name: str, grant: str, expires_time_us: int | None) -> StoredKey:
        """Keep a key under the next number, which was never given before."""
        values = {
            "hash": hash_,
            "name": name,
            "grant_json": grant,
            "created_time_us": self._clock.now_us(),
            "expires_time_us": expires_time_us,
        }

        def run(connection: Connection) -> StoredKey:
            key = connection.execute(insert(api_key).values(values)).inserted_primary_key
            assert key is not None
            return _from_row(values | {"id": key[0]})

        return await self._store.transact(run)

    async def keys(self) -> Sequence[StoredKey]:
        """Return all keys in order of their numbers."""
        statement = select(api_key).order_by(api_key.c.id)
        return await self._store.transact(
            lambda connection: [_from_row(row) for row in connection.execute(statement).mappings()]
        )

    async def find(self, hash_: str) -> StoredKey | None:
        """Return the key of a hash."""
        statement = select(api_key).where(api_key.c.hash == hash_)

        def run(connection: Connection) -> StoredKey | None:
            row = connection.execute(statement).mappings().first()
            return None if row is None else _from_row(row)

        return await self._store.transact(run)

    async def remove(self, key_id: int) -> bool:
        """Revoke a key; tell whether it was there."""
        statement = delete(api_key).where(api_key.c.id == key_id)
        return await self._store.transact(lambda connection: connection.execute(statement).rowcount > 0)

    async def version(self) -> tuple[int, int]:
        """Return what differs whenever a key was added or removed: their count and the highest number ever given."""
        statement = select(func.count(), func.coalesce(func.max(api_key.c.id), 0)).select_from(api_key)

        def run(connection: Connection) -> tuple[int, int]:
            count, highest = connection.execute(statement).one()
            return count, highest

        return await self._store.transact(run)


def _from_row(row: Mapping[Any, Any]) -> StoredKey:
    return StoredKey(
        id=row["id"],
        hash=row["hash"],
        name=row["name"],
        grant=row["grant_json"],
        created_time_us=row["created_time_us"],
        expires_time_us=row["expires_time_us"],
    )
