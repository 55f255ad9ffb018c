"""Settings of the query service."""

from msgspec import Struct

__all__ = ["QueryOptions"]


class QueryOptions(Struct, frozen=True):
    """Settings of the query service."""

    rows_max: int = 10_000
    """Most rows in one result."""

    bytes_max: int = 8 << 20
    """Most bytes in one result, as the database counts them."""

    run_timeout_s: float = 5.0
    """Longest time that one run may take, waiting for its turn included."""

    barrier_timeout_s: float = 2.0
    """Longest wait for the log to have what the database has; then the query is run, whatever the client has."""

    prepared_max: int = 10_000
    """Most prepared queries."""

    trackers_max: int = 1024
    """Queries with arguments that are followed, and queries kept parsed, at one time; least recently used out first."""

    inline_rows_max: int = 100
    """Most rows that an event carries along with `deliver: "result"`."""

    delta_rows_max: int = 2000
    """Most rows of a result that is kept to tell how the next one differs."""

    inline_bytes_max: int = 64 << 10
    """Most bytes of rows that an event carries along."""

    capture_enabled: bool = True
    """Whether changes are captured; where they are not, nobody can tell whether a result is still the same."""
