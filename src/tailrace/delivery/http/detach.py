"""Taking a connection away from its protocol, before its request is answered, so that another process answers it.

The request goes along as bytes, written again from what was parsed: whoever gets the connection parses it as if it had
just come. Only plain connections can be taken: what TLS knows of one is in the memory of this process.
"""

import asyncio
import os
import socket
from collections.abc import Callable, Iterable
from typing import Any

from msgspec import Struct

__all__ = ["DETACH", "GONE", "Detach", "Detached", "detached", "head_of"]

DETACH = "tailrace.detach"
"""Name of an ASGI extension of requests whose connection can be taken away."""

GONE = "tailrace.gone"
"""Name in the state of a connection that came from elsewhere: what is called when it is closed."""


class Detached(Struct, frozen=True):
    """A connection that no protocol has, and the request on it that is to be answered."""

    connection: socket.socket
    head: bytes


Detach = Callable[[], Detached | None]
"""Takes the connection of a request away from its protocol; None where something else is under way on it.

The protocol is finished then, as if the client had left: nothing is sent or received by it any more.
"""


def head_of(method: str, target: bytes, version: str, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return a request without a body as it comes over a connection."""
    lines = [b"%s %s HTTP/%s" % (method.encode("ascii"), target, version.encode("ascii"))]
    lines += [name + b": " + value for name, value in headers]
    return b"\r\n".join([*lines, b"", b""])


def detached(transport: asyncio.Transport, head: bytes) -> Detached | None:
    """Take the connection of a transport, which is then closed; None where it cannot be had.

    The transport's own descriptor is closed without a word to the client: the duplicate keeps the connection open.
    """
    plain: Any = transport.get_extra_info("socket")
    if plain is None or transport.get_extra_info("ssl_object") is not None:
        return None
    if transport.is_closing() or transport.get_write_buffer_size():
        return None
    try:
        connection = socket.socket(fileno=os.dup(plain.fileno()))
    except OSError:  # no descriptor left: whoever has the connection keeps it
        return None
    transport.pause_reading()
    transport.abort()
    return Detached(connection, head)
