"""Keys and values: entries, and what may be one. Pure."""

from collections.abc import Sequence

from msgspec import Struct

from tailrace.model.errors import InvalidRequestError

__all__ = [
    "BATCH_MAX",
    "KEY_BYTES_MAX",
    "TTL_S_MAX",
    "VALUE_BYTES_MAX",
    "Entry",
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
