"""Settings of seed D's interface."""

from msgspec import Struct

__all__ = ["JimdbConfig"]


class JimdbConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Seed D's interface: the table `[jimdb]` of the configuration."""

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
