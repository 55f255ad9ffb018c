"""Settings of the subscription service."""

from collections.abc import Mapping

from msgspec import Struct

from tailrace.sql.dialect import Dialects

__all__ = ["ServiceOptions"]


class ServiceOptions(Struct, frozen=True):
    """Settings of the subscription service."""

    retention_changes: int | None = None
    """Scale of the pressure states: how many changes a subscription may fall behind; None for no such states.

    It is what retention keeps, or where nobody set that, `PRESSURE_CHANGES`; then the log keeps more.
    """

    shards: Mapping[str, int] = {}
    """Number of the shard that holds the log of each source; 0 for those not named."""

    dialects: Dialects = {}
    """SQL of each source, for predicates that come before its first table; of others, all dialects may be meant."""

    subscriptions_max: int = 1_000_000
    """Most subscriptions that may exist at one time."""

    capture_enabled: bool = True
    """Whether changes are captured at all; where they are not, there is nothing to subscribe to."""
