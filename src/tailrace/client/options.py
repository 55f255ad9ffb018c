"""Settings of a client."""

from msgspec import Struct

from tailrace.retry import Backoff

__all__ = ["ClientOptions"]


class ClientOptions(Struct, frozen=True):
    """Settings of a client."""

    connect_timeout_s: float = 5.0
    """Longest time to make a connection."""

    answer_timeout_s: float = 30.0
    """Longest silence before a call counts as failed; a poll that waits has that much on top of its wait."""

    idle_s_max: float = 45.0
    """Longest silence on a stream before its connection counts as dead: three keep-alive comments of the server."""

    backoff: Backoff = Backoff(first_s=0.1, longest_s=10.0)
    """Pauses between attempts to get a broken stream back."""

    outage_s_max: float | None = None
    """Longest time that a stream tries to get back before it raises `ConnectionFailed`; None tries for ever."""

    connections_max: int = 1024
    """Most connections at one time; each open stream has one."""

    event_bytes_max: int = 64 << 20
    """Largest event of a stream."""
