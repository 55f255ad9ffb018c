"""Registered consumers of change streams: what they asked for and how far they have acknowledged."""

from msgspec import Struct

from tailrace.model.number import Index, Offset

__all__ = ["Bounded", "Consumer", "ConsumerKey", "Retention", "Strict"]


class Strict(Struct, frozen=True, tag="strict"):
    """The log is kept for the consumer until it acknowledges."""


class Bounded(Struct, frozen=True, tag="bounded"):
    """The log is kept for the consumer as long as it keeps within these bounds; beyond one of them it is ended."""

    progress_lag_ms_max: int
    """Age of the oldest commit that it has not acknowledged."""

    retained_bytes_max: int
    """Log that it has not acknowledged."""

    liveness_timeout_ms: int | None = None
    """Time without a stream or an acknowledgement."""


Retention = Strict | Bounded

ConsumerKey = tuple[str, str]
"""The owner of a consumer and its id."""


class Consumer(Struct, frozen=True):
    """One consumer. `checkpoint` is the last commit that it acknowledged, `checkpoint_offset` its last change.

    `ended` tells why it ended; None while it lives. Each registration of an id is another incarnation, from 1 upwards.
    Each owner has ids of its own.
    """

    id: str
    shard: int
    incarnation: int
    retention: Retention
    checkpoint: Index
    checkpoint_offset: Offset
    owner: str
    ended: str | None = None

    @property
    def key(self) -> ConsumerKey:
        """Return what tells it from all others."""
        return self.owner, self.id
