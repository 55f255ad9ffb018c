"""Bounds of consumers: which are possible, and which of them a consumer has passed. Pure."""

from enum import StrEnum

from msgspec import Struct

from tailrace.meta.consumer import Bounded, Retention, Strict
from tailrace.model.errors import InvalidRequestError

__all__ = ["EndReason", "Standing", "check_retention", "passed"]


class EndReason(StrEnum):
    """Why a consumer ended."""

    CANCELLED = "CANCELLED"
    PROGRESS_LAG = "PROGRESS_LAG_EXCEEDED"
    RETAINED_BYTES = "RETAINED_BYTES_EXCEEDED"
    LIVENESS = "LIVENESS_TIMEOUT"


class Standing(Struct, frozen=True):
    """Where a consumer stands: how old and how large is what it has not acknowledged, and how long it was silent."""

    lag_ms: int
    retained_bytes: int
    silent_ms: int


def check_retention(retention: Retention, heartbeat_ms: int) -> None:
    """Refuse bounds that cannot be kept.

    Raises:
        InvalidRequestError: A bound is nothing, or a consumer could not be heard in time.
    """
    if isinstance(retention, Strict):
        return
    if retention.progress_lag_ms_max <= 0:
        raise InvalidRequestError("retention.bounded.max_progress_lag_ms must be more than 0")
    if retention.retained_bytes_max <= 0:
        raise InvalidRequestError("retention.bounded.max_retained_bytes must be more than 0")
    liveness_ms = retention.liveness_timeout_ms
    if liveness_ms is not None and liveness_ms <= heartbeat_ms:
        raise InvalidRequestError(
            f"retention.bounded.liveness_timeout_ms must be more than the heartbeat interval of {heartbeat_ms} ms"
        )


def passed(retention: Retention, standing: Standing, strict_bytes_max: int | None) -> EndReason | None:
    """Return the bound that a consumer has passed; None while it keeps within all of them."""
    match retention:
        case Strict():
            exceeded = strict_bytes_max is not None and standing.retained_bytes > strict_bytes_max
            return EndReason.RETAINED_BYTES if exceeded else None
        case Bounded(lag_ms_max, bytes_max, liveness_ms):
            if liveness_ms is not None and standing.silent_ms > liveness_ms:
                return EndReason.LIVENESS
            if standing.lag_ms > lag_ms_max:
                return EndReason.PROGRESS_LAG
            return EndReason.RETAINED_BYTES if standing.retained_bytes > bytes_max else None
