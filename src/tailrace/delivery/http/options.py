"""Settings of the HTTP interface."""

from msgspec import Struct

__all__ = ["HttpOptions"]


class HttpOptions(Struct, frozen=True):
    """Settings of the HTTP interface."""

    body_bytes_max: int = 1 << 20
    """Largest body of a request."""

    body_timeout_s: float = 30.0
    """Longest time that a request's body may take to arrive."""

    poll_bytes_max: int = 8 << 20
    """Most bytes of events in the answer to one poll; one event may be larger."""

    poll_scan_s_max: float = 10.0
    """Longest time that a poll without a match looks through the log before it answers how far it came."""

    stream_changes_max: int = 4096
    """Most changes in one write to a stream; then others have their turn."""

    stream_bytes_max: int = 2 << 20
    """Most bytes in one write to a stream; one event may be larger."""

    stream_keepalive_s: float = 15.0
    """Longest silence on a stream before a comment line is sent."""

    stream_state_s: float = 5.0
    """Longest time until a stream tells that the state of its subscription has changed."""

    encoded_bytes_max: int = 32 << 20
    """Most memory for encoded events that wait for another subscriber."""

    stop_timeout_s: float = 3.0
    """Longest time that open connections may take to finish when the server stops; then they are cut."""
