"""Settings of the services on the gRPC port."""

from msgspec import Struct

__all__ = ["GrpcOptions"]


class GrpcOptions(Struct, frozen=True):
    """Settings of the services on the gRPC port."""

    stream_changes_max: int = 1024
    """Most events in one write to a stream whose client does not say how many; then others have their turn."""

    stream_bytes_max: int = 256 << 10
    """Most bytes in one write to a stream; one event may be larger."""

    stream_wait_s: float = 60.0
    """Longest wait for changes; it is renewed at once."""

    encoded_bytes_max: int = 32 << 20
    """Most memory for encoded events that wait for another subscriber."""
