"""Settings of the query service."""

from typing import TypeVar

from msgspec import Struct

from tailrace.quantity import parse_duration_s, parse_size_bytes

__all__ = ["QueryConfig", "QueryOptions", "query_options"]

_T = TypeVar("_T")


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


class QueryConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """What prepared queries may cost, each and all together."""

    rows_max: int = 10_000
    bytes_max: str | int = "8MiB"
    timeout: str = "5s"
    log_timeout: str = "2s"
    prepared_max: int = 10_000
    trackers_max: int = 1024
    runs_max: int = 4
    inline_rows_max: int = 100
    inline_bytes_max: str | int = "64KiB"
    delta_rows_max: int = 2000


def query_options(config: QueryConfig, *, capture_enabled: bool = True) -> QueryOptions:
    """Return the options of the query service under a configuration that was checked."""
    return QueryOptions(
        rows_max=config.rows_max,
        bytes_max=_limit(parse_size_bytes(config.bytes_max)),
        run_timeout_s=_limit(parse_duration_s(config.timeout)),
        barrier_timeout_s=_limit(parse_duration_s(config.log_timeout)),
        prepared_max=config.prepared_max,
        trackers_max=config.trackers_max,
        inline_rows_max=config.inline_rows_max,
        inline_bytes_max=_limit(parse_size_bytes(config.inline_bytes_max)),
        delta_rows_max=config.delta_rows_max,
        capture_enabled=capture_enabled,
    )


def _limit(value: _T | None) -> _T:
    assert value is not None
    return value
