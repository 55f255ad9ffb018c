"""How long a database server may not be heard of before its connection counts as lost.

It is the machine that is to answer, not the database: a statement may take as long as it wants. Without this, a network
that forgets a connection holds a worker for hours.
"""

import socket
from collections.abc import Mapping
from typing import Any

__all__ = ["LIBPQ_OPTIONS", "connected"]

_IDLE_S = 30
_INTERVAL_S = 10
_PROBES = 3
_SILENCE_S_MAX = _IDLE_S + _INTERVAL_S * _PROBES

LIBPQ_OPTIONS: Mapping[str, Any] = {
    "keepalives": 1,
    "keepalives_idle": _IDLE_S,
    "keepalives_interval": _INTERVAL_S,
    "keepalives_count": _PROBES,
    "tcp_user_timeout": _SILENCE_S_MAX * 1000,
}
"""For connections that libpq makes."""

_SOCKET_OPTIONS = {
    "TCP_NODELAY": 1,
    "TCP_KEEPIDLE": _IDLE_S,
    "TCP_KEEPINTVL": _INTERVAL_S,
    "TCP_KEEPCNT": _PROBES,
    "TCP_USER_TIMEOUT": _SILENCE_S_MAX * 1000,
}
"""Not every system has all of them."""


def connected(host: str, port: int, timeout_s: float) -> socket.socket:
    """Return a connection that fails when its other side is gone.

    Raises:
        OSError: Nobody is there.
    """
    connection = socket.create_connection((host, port), timeout_s)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _SOCKET_OPTIONS.items():
        if (option := getattr(socket, name, None)) is not None:
            connection.setsockopt(socket.IPPROTO_TCP, option, value)
    return connection
