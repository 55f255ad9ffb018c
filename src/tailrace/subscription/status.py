"""Where subscriptions stand. Pure."""

from msgspec import Struct

from tailrace.model.number import Offset
from tailrace.model.subscription import Subscription
from tailrace.subscription.log_view import LogView
from tailrace.subscription.pressure import Pressure, pressure_of, steady_lag_of

__all__ = ["SubscriptionStatus", "status_of"]


class SubscriptionStatus(Struct, frozen=True):
    """Where a subscription stands against its log.

    The state of pressure is the same until the head is beyond `steady_head`, if that is not None, or the horizon behind
    the cursor, or the subscription another one.
    """

    subscription: Subscription
    head: Offset
    horizon: Offset
    pressure: Pressure
    steady_head: Offset | None


def status_of(subscription: Subscription, log: LogView, retention_changes: int | None) -> SubscriptionStatus:
    """Return where a subscription stands now."""
    pressure = pressure_of(
        cursor=subscription.cursor,
        head=log.head,
        horizon=log.horizon,
        retention_changes=retention_changes,
        paused=subscription.paused,
    )
    steady_lag = steady_lag_of(pressure.lag, retention_changes)
    steady_head = None if steady_lag is None else Offset(subscription.cursor + steady_lag)
    return SubscriptionStatus(subscription, log.head, log.horizon, pressure, steady_head)
