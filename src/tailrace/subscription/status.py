"""Where subscriptions stand. Pure."""

from msgspec import Struct

from tailrace.model.number import Offset
from tailrace.model.subscription import Subscription
from tailrace.subscription.log_view import LogView
from tailrace.subscription.pressure import Pressure, pressure_of

__all__ = ["SubscriptionStatus", "status_of"]


class SubscriptionStatus(Struct, frozen=True):
    """Where a subscription stands against its log."""

    subscription: Subscription
    head: Offset
    horizon: Offset
    pressure: Pressure


def status_of(subscription: Subscription, log: LogView, retention_changes: int | None) -> SubscriptionStatus:
    """Return where a subscription stands now."""
    pressure = pressure_of(
        cursor=subscription.cursor,
        head=log.head,
        horizon=log.horizon,
        retention_changes=retention_changes,
        paused=subscription.paused,
    )
    return SubscriptionStatus(subscription, log.head, log.horizon, pressure)
