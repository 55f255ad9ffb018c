"""Bounds of the gRPC transport."""

from msgspec import Struct

__all__ = ["TransportOptions"]


class TransportOptions(Struct, frozen=True):
    """Bounds of the gRPC transport: what one client, and all together, may take."""

    connections_max: int = 10_000
    """Connections at one time; whoever comes then is closed at once."""

    streams_max: int = 2_000
    """Calls at one time on one connection; announced to clients, and a client that opens more loses its connection."""

    message_bytes_max: int = 4 << 20
    """Largest message of a request; a larger one ends its call with RESOURCE_EXHAUSTED."""

    headers_bytes_max: int = 32 << 10
    """Largest list of headers of a request; a larger one costs the client its connection."""

    frame_bytes_max: int = 64 << 10
    """Largest frame that a client may send."""

    stream_window_bytes: int = 1 << 20
    """How much a client may send on one stream beyond what its handler took."""

    connection_window_bytes: int = 16 << 20
    """How much a client may have on its way on all streams of a connection."""

    connection_held_bytes_max: int = 64 << 20
    """Request bytes in memory for one connection; beyond it a call ends with RESOURCE_EXHAUSTED."""

    held_bytes_max: int = 512 << 20
    """Request bytes in memory for all connections; beyond it a call ends with RESOURCE_EXHAUSTED."""

    write_bytes: int = 256 << 10
    """How much may wait in a connection's socket buffer of ours before writes wait."""

    unread_bytes_max: int = 2 << 20
    """Most bytes that wait for a client that goes on asking without reading; then it loses its connection."""

    share_bytes: int = 128 << 10
    """How much one stream sends before another has its turn."""

    frames_a_step: int = 2
    """Frames of one connection that are read before the clock is looked at."""

    share_s: float = 0.001
    """How long one connection reads before other connections have their turn."""

    turn_s: float = 0.004
    """How long all connections read before everything else in the process has its turn."""

    call_s: float = 0.0002
    """What the beginning of a call counts beside reading it: its handler runs later in the same turn."""

    waiting_max: int = 64
    """Connections that wait for their turn before few more are accepted; the kernel keeps those that come."""

    light_s: float = 0.05
    """Reading time of late, halved each second, below which a connection comes before others."""

    offence_s: float = 0.005
    """What a call that is refused or broken off counts beside reading it."""

    offences_max: int = 1_000
    """Calls of a connection that may be refused, or broken off by the client before an answer; then it is closed."""

    offences_per_s: float = 50.0
    """How many of those are forgotten each second."""

    ended_a_turn: int = 50
    """Calls of a connection that has gone which are ended before other connections have their turn."""

    handshake_s_max: float = 10.0
    """Longest time until a connection has said that it speaks HTTP/2, and for its TLS handshake."""

    request_s_max: float = 60.0
    """Longest time that the only message of a request may take to arrive."""

    keepalive_s: float = 30.0
    """Longest silence of a client before it is asked for a sign of life."""

    keepalive_s_max: float = 20.0
    """Longest time that it may take to give one; then it counts as gone."""

    idle_s_max: float = 1800.0
    """Longest time that a connection may stay open without a call."""

    close_s_max: float = 2.0
    """Longest time that the last bytes of a call or connection may take to leave; then they are dropped."""

    streams_stop_s: float = 0.25
    """How long streams may take to end by themselves when the server stops; then they end with UNAVAILABLE."""

    stop_s_max: float = 3.0
    """Longest time that running calls may take to finish when the server stops; then they end with UNAVAILABLE."""
