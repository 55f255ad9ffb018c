"""Several subscriptions over one connection: which, and where each begins. Pure.

A place that the client has seen (`Last-Event-ID`) wins over one in the URL, unlike on a stream of one subscription: a
browser that reconnects sends the URL that it was given and the id that it has seen.
"""

from collections.abc import Sequence

from tailrace.delivery.http.streaming import STREAMS_MAX
from tailrace.interface.skeindb.framing import parse_places
from tailrace.interface.skeindb.resume import seen_in
from tailrace.model.errors import InvalidRequestError
from tailrace.model.number import Offset
from tailrace.model.subscription import SubscriptionId
from tailrace.model.subscription_name import parse_sub_id

__all__ = ["parse_streams"]


def parse_streams(names: Sequence[str], last_event_id: str | None) -> dict[SubscriptionId, Offset | None]:
    """Return the subscriptions that a URL names as `sub_…` or `sub_…:offset`, each with the last offset seen, if any.

    Raises:
        InvalidRequestError: None or too many are named, one twice, or an offset is none.
        UnknownSubscriptionError: No subscription ever has such a name.
    """
    if not 1 <= len(names) <= STREAMS_MAX:
        raise InvalidRequestError(f"name 1 to {STREAMS_MAX} subscriptions, as ?sub=sub_…&sub=sub_…")
    seen = {} if last_event_id is None else parse_places(last_event_id)
    streams: dict[SubscriptionId, Offset | None] = {}
    for name in names:
        sub_id, colon, digits = name.partition(":")
        subscription_id = parse_sub_id(sub_id)
        if subscription_id in streams:
            raise InvalidRequestError(f"{sub_id} is named twice")
        given = seen_in(digits if colon else None, None)
        streams[subscription_id] = seen.get(subscription_id, given)
    return streams
