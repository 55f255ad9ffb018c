"""Names of subscriptions on the wires. Pure."""

import re

from tailrace.model.errors import UnknownSubscriptionError
from tailrace.model.subscription import SubscriptionId

__all__ = ["parse_sub_id", "sub_id_of"]

_SUB_ID = re.compile(r"sub_([0-9a-f]{16})", re.ASCII)


def sub_id_of(subscription_id: SubscriptionId) -> str:
    """Return the name of a subscription in SkeinDB: `sub_` and 16 hexadecimal digits."""
    return f"sub_{subscription_id:016x}"


def parse_sub_id(name: str) -> SubscriptionId:
    """Return the number of a subscription from its name in SkeinDB.

    Raises:
        UnknownSubscriptionError: No subscription ever has such a name.
    """
    match = _SUB_ID.fullmatch(name)
    if match is None:
        raise UnknownSubscriptionError(name)
    return SubscriptionId(int(match[1], 16))
