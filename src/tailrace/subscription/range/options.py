"""Settings of ranges and their pullers."""

from msgspec import Struct

__all__ = ["PullOptions", "RangeOptions"]


class RangeOptions(Struct, frozen=True, kw_only=True):
    """How ranges are made, and what pullers may cost."""

    ranges_max: int = 8
    """Ranges that a table is divided into when it is first asked for."""

    rows_min: int = 50_000
    """Rows of a table for which a range more is worth while."""

    registrations_max: int = 10_000
    """Most pullers that may be registered at one time, each with a range."""

    retained_bytes_max: int | None = None
    """Log that is kept for a puller; one that is further behind holds nothing back. None keeps all."""

    silent_s_max: float | None = None
    """How long the log is kept for a puller that is not heard. None keeps it for ever."""

    check_interval_s: float = 1.0
    """How often pullers are looked at, and what they have come to is kept."""


class PullOptions(Struct, frozen=True, kw_only=True):
    """Bounds of one answer."""

    rows_max: int = 1000
    """Rows, or changes, in one answer."""

    bytes_max: int = 1 << 20
    """Keys and values in one answer; one row may be larger."""

    scan_changes_max: int = 500_000
    """Changes that are looked through for one answer, most of which may be of other tables."""

    wait_s: float = 5.0
    """How long an answer waits for a change."""

    wait_step_s: float = 1.0
    """How often somebody who waits looks whether the server stops."""
