"""The seam of keys and values: a store beside the tables of a source, captured like any of them."""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from tailrace.model.key_value import Entry

__all__ = ["KeyValueStore", "PageLimits"]


class PageLimits(Struct, frozen=True):
    """Bounds of one page of entries; one entry may be larger."""

    entries_max: int
    bytes_max: int


class KeyValueStore(Protocol):
    """Keys and values of one source. Safe to call from many tasks of one event loop.

    Each write is a change of the table `kv` in the log of the source. An entry whose time is over is never returned;
    `run` removes it, which is a delete in the log, and so does the next write of its key. Every method raises
    `KeyValueError` where the database has a table `kv` of its own, and `SourceUnavailableError` where it is locked or
    cannot be reached.
    """

    async def get(self, keys: Sequence[bytes], bytes_max: int) -> list[bytes | None]:
        """Return the values of keys, all as of one moment, in their order; None for a key that is not there.

        Raises:
            ResultTooLargeError: The values have more than `bytes_max` bytes together.
        """

    async def put(self, entries: Sequence[Entry]) -> None:
        """Keep entries, all of them or none, over what their keys had before. They are on disk when this returns."""

    async def delete(self, key: bytes) -> bool:
        """Remove a key; tell whether it was there. Gone from disk when this returns."""

    async def scan(self, prefix: bytes, after: bytes | None, limits: PageLimits) -> list[Entry]:
        """Return the first entries whose keys begin with `prefix` and come after a key, in order of their keys."""

    async def run(self) -> None:
        """Remove entries as their time is over, until cancelled. Survives what passes: a lock, a missing database."""

    async def close(self) -> None:
        """Finish the writes that are under way, and disconnect."""
