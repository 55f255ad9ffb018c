"""Where subscriptions stand."""

from msgspec import Struct

from tailrace.model.number import Offset
from tailrace.model.subscription import Subscription
from tailrace.subscription.pressure import Pressure

__all__ = ["SubscriptionStatus"]


class SubscriptionStatus(Struct, frozen=True):
    """Where a subscription stands against its log."""

    subscription: Subscription
    head: Offset
    horizon: Offset
    pressure: Pressure
