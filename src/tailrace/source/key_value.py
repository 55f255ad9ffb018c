"""The seam of keys and values: a store beside the tables of a source, captured like any of them."""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from tailrace.model.errors import InvalidRequestError

__all__ = [
    "BATCH_MAX",
    "KEY_BYTES_MAX",
    "TTL_S_MAX",
    "VALUE_BYTES_MAX",
    "Entry",
    "KeyValueStore",
    "PageLimits",
    "check_entries",
    "check_keys",
]

KEY_BYTES_MAX = 64 << 10
"""Largest key."""

VALUE_BYTES_MAX = 4 << 20
"""Largest value."""

BATCH_MAX = 4096
"""Most entries that are read or written at once."""

TTL_S_MAX = 100 * 365 * 86400
"""Longest time that an entry may be given."""


class Entry(Struct, frozen=True):
    """A key with its value. With a `ttl_s` it is gone after this many seconds; 0 keeps it."""

    key: bytes
    value: bytes
    ttl_s: int = 0


def check_keys(keys: Sequence[bytes]) -> None:
    """Refuse keys that no store takes.

    Raises:
        InvalidRequestError: A key is empty or too large, or there are too many.
    """
    if len(keys) > BATCH_MAX:
        raise InvalidRequestError(f"{len(keys)} keys at once are too many: send at most {BATCH_MAX}")
    for key in keys:
        if not key:
            raise InvalidRequestError("a key has at least one byte")
        if len(key) > KEY_BYTES_MAX:
            raise InvalidRequestError(f"a key of {len(key)} bytes is too large: it may have {KEY_BYTES_MAX}")


def check_entries(entries: Sequence[Entry]) -> None:
    """Refuse entries that no store takes.

    Raises:
        InvalidRequestError: A key, a value or a time is out of bounds, or there are too many.
    """
    check_keys([entry.key for entry in entries])
    for entry in entries:
        if len(entry.value) > VALUE_BYTES_MAX:
            size_bytes = len(entry.value)
            raise InvalidRequestError(f"a value of {size_bytes} bytes is too large: it may have {VALUE_BYTES_MAX}")
        if not 0 <= entry.ttl_s <= TTL_S_MAX:
            raise InvalidRequestError(f"ttl_seconds is 0 for ever, or at most {TTL_S_MAX}")


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
