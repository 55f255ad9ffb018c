"""Back-pressure: how near a subscriber is to losing changes to retention. Pure."""

from enum import StrEnum

from msgspec import Struct

from tailrace.model.number import Offset
from tailrace.quantity import parse_size_bytes

__all__ = [
    "PRESSURE_CHANGES",
    "Pressure",
    "PressureState",
    "pressure_changes",
    "pressure_of",
    "steady_lag_of",
    "throttle_lag_of",
    "warn_lag_of",
]


PRESSURE_CHANGES = 4096
"""Scale of the states where nobody set how many changes are retained: the default horizon of SkeinDB's interface."""


class PressureState(StrEnum):
    """From well to lost. Of several that apply, the last counts."""

    HEALTHY = "healthy"
    PRESSURE = "pressure"
    THROTTLE = "throttle"
    PAUSED = "paused"
    RESNAPSHOT_REQUIRED = "resnapshot_required"


class Pressure(Struct, frozen=True):
    """State of one subscription. `remaining` is how many more changes it may fall behind; None for no count."""

    state: PressureState
    lag: int
    remaining: int | None


def pressure_changes(events: str | int | None) -> int | None:
    """Return how many changes a subscription may fall behind before it is under full pressure; None for any number.

    `events` is how many changes are retained, as the configuration says it; None where it says nothing.
    """
    return PRESSURE_CHANGES if events is None else parse_size_bytes(events)


def pressure_of(
    *, cursor: Offset, head: Offset, horizon: Offset, retention_changes: int | None, paused: bool = False
) -> Pressure:
    """Return the pressure on a subscription.

    The thresholds are parts of the retained window as counted in changes: one half (at least one change) for pressure,
    three quarters (rounded up) for throttle. Where retention does not count changes there is no such window: then the
    state is healthy until the cursor really lies behind the horizon.
    """
    lag = max(0, head - cursor)
    remaining = None if retention_changes is None else max(0, retention_changes - lag)
    if cursor + 1 < horizon:
        state = PressureState.RESNAPSHOT_REQUIRED
    elif paused:
        state = PressureState.PAUSED
    else:
        state = _state(lag, retention_changes)
    return Pressure(state, lag, remaining)


def steady_lag_of(lag: int, retention_changes: int | None) -> int | None:
    """Return the largest lag for which the state is as it is for this one, the horizon aside; None for any larger."""
    if retention_changes is None:
        return None
    thresholds = (warn_lag_of(retention_changes), throttle_lag_of(retention_changes))
    return min((threshold - 1 for threshold in thresholds if threshold > lag), default=None)


def warn_lag_of(retention_changes: int) -> int:
    """Return the lag from which on a subscription is under pressure."""
    return max(1, retention_changes // 2)


def throttle_lag_of(retention_changes: int) -> int:
    """Return the lag from which on writers should be slowed down."""
    return -(-3 * retention_changes // 4)


def _state(lag: int, retention_changes: int | None) -> PressureState:
    if retention_changes is None:
        return PressureState.HEALTHY
    if lag >= throttle_lag_of(retention_changes):
        return PressureState.THROTTLE
    if lag >= warn_lag_of(retention_changes):
        return PressureState.PRESSURE
    return PressureState.HEALTHY
