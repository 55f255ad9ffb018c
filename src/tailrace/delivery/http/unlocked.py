"""Writing to a connection while other threads run: uvloop keeps the interpreter's lock as it writes."""

import asyncio
import os
from collections.abc import Sequence

__all__ = ["write"]

_BYTES_MIN = 64 << 10
"""Below this, to take the lock again would cost more than is gained."""


def write(transport: asyncio.Transport, parts: Sequence[bytes], *, is_read: bool) -> None:
    """Write parts as `transport.writelines` does; many bytes, where nothing else waits, without the lock.

    `is_read` is for a client that is known to read. What waits for one that does not must stay shared with others: what
    is left of a part that was written without the lock is a copy of its own.
    """
    left: Sequence[bytes | memoryview] = parts
    if (
        is_read
        and sum(map(len, parts)) >= _BYTES_MIN
        and not transport.is_closing()
        and not transport.get_write_buffer_size()
    ):
        plain = transport.get_extra_info("socket")
        if plain is not None and transport.get_extra_info("ssl_object") is None:
            left = _written(plain.fileno(), parts)
    if left:
        transport.writelines(left)


def _written(descriptor: int, parts: Sequence[bytes]) -> list[bytes | memoryview]:
    """Write what the system takes at once; return the rest."""
    try:
        count = os.writev(descriptor, parts)
    except OSError:  # it takes nothing now, or never will: the transport finds out
        return list(parts)
    left: list[bytes | memoryview] = []
    for part in parts:
        if count < len(part):
            left.append(memoryview(part)[count:])
        count = max(0, count - len(part))
    return left
