"""Settings of change streams."""

from msgspec import Struct

from tailrace.quantity import parse_duration_s, parse_size_bytes

__all__ = [
    "ChangeStreamConfig",
    "ChangeStreamOptions",
    "ConsumerOptions",
    "EdgeTable",
    "consumer_options",
    "stream_options",
]


class EdgeTable(Struct, frozen=True, forbid_unknown_fields=True):
    """How the rows of a table are read as edges. Either `type` or `type_column` is set, not both."""

    source_column: str
    """Column that holds where the edge begins."""

    target_column: str
    """Column that holds where it ends."""

    type: str = ""
    """Type of all its edges."""

    type_column: str = ""
    """Column that holds the type of each edge."""


class ChangeStreamConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """CoordiNode's interface: the table `[coordinode]` of the configuration."""

    event_bytes: str | int = 4_000_000
    """Operations in one event; a larger commit is sent as several."""

    heartbeat_interval: str = "10s"
    """How often a consumer with an open stream is heard at least; shorter liveness time-outs are refused."""

    strict_bytes: str | int = "64GiB"
    """Log that is kept for a consumer with strict retention; beyond it, the consumer is ended."""

    consumers_max: int = 1000
    """Most consumers that may live at one time."""


class ChangeStreamOptions(Struct, frozen=True, kw_only=True):
    """Settings of change streams."""

    capture_enabled: bool = True
    """Whether changes are captured at all."""

    event_bytes_max: int = 4_000_000
    """Operations in one event; a larger commit is sent as several. gRPC's clients take 4 MiB by default."""

    write_bytes_max: int = 256 << 10
    """Most bytes in one write to a stream; one event may be larger."""

    encoded_bytes_max: int = 16 << 20
    """Memory for events that were encoded for one stream and are kept for others."""

    progress_s: float = 1.0
    """How long a stream waits at the head before it tells how far it has read, if it left commits out."""

    consumer_progress_s: float = 0.1
    """The same for a registered consumer, which can acknowledge what it gets."""

    wait_s_max: float = 60.0
    """Longest single wait for commits; it is renewed at once."""

    blocked_wait_s: float = 0.05
    """How long a merged stream waits for a shard that is about to show a commit."""


class ConsumerOptions(Struct, frozen=True, kw_only=True):
    """Settings of consumers."""

    heartbeat_ms: int = 10_000
    """A consumer with an open stream is heard at least this often; shorter liveness time-outs are refused."""

    strict_bytes_max: int | None = None
    """Log that is kept for a consumer with strict retention; beyond it, it is ended. None keeps all."""

    consumers_max: int = 1000
    """Most consumers that may live at one time."""

    check_interval_s: float = 1.0
    """How often bounds are looked at."""


def consumer_options(settings: ChangeStreamConfig) -> ConsumerOptions:
    """Return the options of the consumers of change streams under a configuration that was checked."""
    heartbeat_s = parse_duration_s(settings.heartbeat_interval)
    assert heartbeat_s is not None
    return ConsumerOptions(
        heartbeat_ms=int(heartbeat_s * 1000),
        strict_bytes_max=parse_size_bytes(settings.strict_bytes),
        consumers_max=settings.consumers_max,
    )


def stream_options(settings: ChangeStreamConfig, *, capture_enabled: bool) -> ChangeStreamOptions:
    """Return the options of change streams under a configuration that was checked."""
    event_bytes = parse_size_bytes(settings.event_bytes)
    assert event_bytes is not None
    return ChangeStreamOptions(capture_enabled=capture_enabled, event_bytes_max=event_bytes)
