"""Settings of JimDB's interface."""

from collections.abc import Callable

from msgspec import Struct

from tailrace.model.errors import ConfigError
from tailrace.quantity import parse_duration_s, parse_size_bytes

__all__ = ["JimdbConfig", "PullOptions", "RangeOptions", "check_jimdb", "pull_options", "range_options"]

_CLUSTER_MAX = 2**31 - 1


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
    """How often someone who waits looks whether the server stops."""


class JimdbConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """JimDB's interface: the table `[jimdb]` of the configuration."""

    cluster_id: int = 0
    """Number of the cluster that the server is; requests that name another one are refused."""

    ranges_max: int = 8
    """Ranges that a table is divided into when it is first asked for."""

    page_rows: int = 1000
    """Most rows, or changes, in one answer."""

    answer_bytes: str | int = "1MiB"
    """Keys and values in one answer; one row may be larger."""

    log_wait: str = "5s"
    """How long CdcPullLog waits for a change."""

    retained_bytes: str | int = "16GiB"
    """Log that is kept for a puller; one that is further behind holds nothing back."""

    silence: str = "7d"
    """How long the log is kept for a puller that is not heard."""

    registrations_max: int = 10_000
    """Most pullers that may be registered at one time, each with a range."""

    server_url: str = ""
    """Where the workers of pipelines find the server; by default the address of its HTTP interface."""


def check_jimdb(settings: JimdbConfig) -> None:
    """Refuse what the types cannot.

    Raises:
        ConfigError: A setting is wrong; the message names it.
    """
    if not 0 <= settings.cluster_id <= _CLUSTER_MAX:
        raise ConfigError(f"jimdb.cluster_id: {settings.cluster_id} is not a number from 0 to {_CLUSTER_MAX}")
    for name in ("ranges_max", "page_rows", "registrations_max"):
        if getattr(settings, name) < 1:
            raise ConfigError(f"jimdb.{name} must be at least 1")
    quantities: dict[str, Callable[[], float | None]] = {
        "answer_bytes": lambda: parse_size_bytes(settings.answer_bytes),
        "log_wait": lambda: parse_duration_s(settings.log_wait),
        "retained_bytes": lambda: parse_size_bytes(settings.retained_bytes) or 1,
        "silence": lambda: parse_duration_s(settings.silence) or 1,
    }
    for name, parse in quantities.items():
        try:
            if parse() is None:
                raise ConfigError("there must be one")
        except ConfigError as error:
            raise ConfigError(f"jimdb.{name}: {error}") from error


def range_options(settings: JimdbConfig) -> RangeOptions:
    """Return the options of ranges and pullers under a configuration that was checked."""
    return RangeOptions(
        ranges_max=settings.ranges_max,
        registrations_max=settings.registrations_max,
        retained_bytes_max=parse_size_bytes(settings.retained_bytes),
        silent_s_max=parse_duration_s(settings.silence),
    )


def pull_options(settings: JimdbConfig) -> PullOptions:
    """Return the bounds of answers under a configuration that was checked."""
    answer_bytes, wait_s = parse_size_bytes(settings.answer_bytes), parse_duration_s(settings.log_wait)
    assert answer_bytes is not None
    assert wait_s is not None
    return PullOptions(rows_max=settings.page_rows, bytes_max=answer_bytes, wait_s=wait_s)
