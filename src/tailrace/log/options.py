"""Settings of the log."""

from msgspec import Struct

from tailrace.quantity import parse_duration_s, parse_size_bytes

__all__ = ["LogConfig", "LogOptions", "RetentionConfig", "log_options"]

_MIB = 1024 * 1024


class LogOptions(Struct, frozen=True, kw_only=True):
    """How the log writes, what it keeps in memory, and when it forgets."""

    segment_bytes_max: int = 64 * _MIB
    """A segment of this size is sealed before the next frame. Files are removed whole, so this is also the grain."""

    segment_age_max_s: float = 86400.0
    """A segment of this age is sealed before the next frame."""

    zero_ahead_bytes: int = 1 * _MIB
    """This many zeros are written behind a frame of at most a sixteenth of that at a segment's end: it halves syncs."""

    frame_bytes_max: int = 2 * _MIB
    """Appends are grouped into frames of about this size; one larger append is a frame of its own."""

    frame_changes_max: int = 16384
    """Appends are grouped into frames of about this many changes."""

    pending_bytes_max: int = 16 * _MIB
    """`append` waits while appends of this size are on their way to disk."""

    pending_changes_max: int = 65536
    """`append` waits while this many changes are on their way to disk."""

    ring_changes_max: int = 65536
    """Newest changes kept in memory."""

    ring_bytes_max: int = 12 * _MIB
    """Memory for the newest changes."""

    cache_bytes_max: int = 10 * _MIB
    """Memory for blocks read back from segments."""

    retention_changes: int | None = None
    """Keep at most this many changes; exact. None keeps all."""

    retention_bytes: int | None = 4096 * _MIB
    """Keep at most this many bytes of frames, cut at a frame. None keeps all."""

    retention_age_s: float | None = 7 * 86400.0
    """Keep changes appended within this time, cut at a frame. None keeps all."""

    retention_interval_s: float = 10.0
    """How often the rules for bytes and age are applied, besides each new segment."""

    compact: bool = True
    """Write sealed segments of small frames again in large ones, in the background."""

    compact_interval_s: float = 5.0
    """How often sealed segments are looked at. A segment is compacted about this long after it was sealed."""


class LogConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """How much of the log is kept in memory, besides on disk, and whether its older files are compacted."""

    ring_changes: str | int = 65536
    compact: bool = True


class RetentionConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """When the log may forget; whichever comes first. "none" switches a rule off.

    Where `events` is not set, the log is not bounded by count, but pressure is measured against `PRESSURE_CHANGES`.
    """

    events: str | int | None = None
    bytes: str | int = "4GiB"
    age: str = "7d"


def log_options(log: LogConfig, retention: RetentionConfig) -> LogOptions:
    """Return the options of each log under a configuration that was checked."""
    ring_changes = parse_size_bytes(log.ring_changes)
    assert ring_changes is not None
    return LogOptions(
        ring_changes_max=ring_changes,
        compact=log.compact,
        retention_changes=None if retention.events is None else parse_size_bytes(retention.events),
        retention_bytes=parse_size_bytes(retention.bytes),
        retention_age_s=parse_duration_s(retention.age),
    )
