"""What a client may ask of a stream besides the feed itself, by parameters of the address."""

from collections.abc import Iterable

from msgspec import Struct
from starlette.datastructures import QueryParams

from tailrace.envelope.envelopes import WHOLE
from tailrace.model.errors import InvalidRequestError
from tailrace.model.subscription import QueryTarget, Subscription

__all__ = ["USUAL", "StreamOptions", "check_envelope", "stream_options"]


class StreamOptions(Struct, frozen=True):
    """How a stream tells things."""

    heartbeat: bool = False
    """Whether it tells after silence how far it is."""

    envelope: str = ""
    """Name of the envelope that changes are wrapped in; empty for our own events."""


USUAL = StreamOptions()


def stream_options(params: QueryParams, subscriptions: Iterable[Subscription] = ()) -> StreamOptions:
    """Return what the parameters ask for.

    Raises:
        InvalidRequestError: There is no such envelope, or a subscription is one to a query.
    """
    envelope = params.get("envelope", "")
    for subscription in subscriptions:
        check_envelope(envelope, subscription)
    check_envelope(envelope)
    return StreamOptions(params.get("heartbeat") == "1", envelope)


def check_envelope(envelope: str, subscription: Subscription | None = None) -> None:
    """Check whether changes can be wrapped in an envelope.

    Raises:
        InvalidRequestError: There is no such envelope, or the subscription is one to a query, which tells no changes.
    """
    if envelope and envelope not in WHOLE:
        raise InvalidRequestError(f"`envelope` is one of {', '.join(WHOLE)}")
    if envelope and subscription is not None and isinstance(subscription.target, QueryTarget):
        raise InvalidRequestError("an envelope is for changes: a query has invalidations")
