"""Options of the log."""

from msgspec import Struct

__all__ = ["LogOptions"]

_MIB = 1024 * 1024


class LogOptions(Struct, frozen=True, kw_only=True):
    """How the log writes, what it keeps in memory, and when it forgets."""

    segment_bytes_max: int = 64 * _MIB
    """A segment of this size is sealed before the next frame. Files are removed whole, so this is also the grain."""

    segment_age_max_s: float = 86400.0
    """A segment of this age is sealed before the next frame."""

    zero_ahead_bytes: int = 1 * _MIB
    """This many zeros are written behind a small frame at a segment's end, which halves the time of the next syncs."""

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
