"""Tailrace from Python: subscriptions and calls over HTTP. See docs/reference/client.md.

with Client("http://127.0.0.1:8080") as client:
    for event in client.subscribe("app", "users"):
        print(event.op, event.pk, event.after)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tailrace.client.asynchronous import AsyncClient
    from tailrace.client.blocking import BlockingEvent, Client, Subscription
    from tailrace.client.errors import (
        BadAnswer,
        ClientError,
        Conflict,
        ConnectionFailed,
        FeedFailed,
        Forbidden,
        InvalidRequest,
        NotFound,
        NotSupported,
        RateLimited,
        Refused,
        ResnapshotRequired,
        ServerFault,
        TimedOut,
        Unauthorized,
    )
    from tailrace.client.event import Backpressure, Control, Event, Heartbeat, Notice
    from tailrace.client.request import SubscribeOptions
    from tailrace.client.result import (
        Acknowledged,
        Capabilities,
        Closed,
        PauseState,
        Ping,
        Poll,
        Prepared,
        QueryResult,
        SubscriptionInfo,
        Version,
    )
    from tailrace.client.subscription import AsyncEvent, AsyncFeed, AsyncSubscription
    from tailrace.client.transport import ClientOptions

__all__ = [
    "Acknowledged",
    "AsyncClient",
    "AsyncEvent",
    "AsyncFeed",
    "AsyncSubscription",
    "Backpressure",
    "BadAnswer",
    "BlockingEvent",
    "Capabilities",
    "Client",
    "ClientError",
    "ClientOptions",
    "Closed",
    "Conflict",
    "ConnectionFailed",
    "Control",
    "Event",
    "FeedFailed",
    "Forbidden",
    "Heartbeat",
    "InvalidRequest",
    "NotFound",
    "NotSupported",
    "Notice",
    "PauseState",
    "Ping",
    "Poll",
    "Prepared",
    "QueryResult",
    "RateLimited",
    "Refused",
    "ResnapshotRequired",
    "ServerFault",
    "SubscribeOptions",
    "Subscription",
    "SubscriptionInfo",
    "TimedOut",
    "Unauthorized",
    "Version",
]

_HOMES = {
    "asynchronous": "AsyncClient",
    "blocking": "BlockingEvent Client Subscription",
    "event": "Backpressure Control Event Heartbeat Notice",
    "request": "SubscribeOptions",
    "result": "Acknowledged Capabilities Closed PauseState Ping Poll Prepared QueryResult SubscriptionInfo Version",
    "subscription": "AsyncEvent AsyncFeed AsyncSubscription",
    "transport": "ClientOptions",
}
"""Modules of what is not an error."""

_HOME = {name: home for home, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    """Import what is asked for: workers of a pipeline need little of the client, and are started often."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME.get(name, 'errors')}"), name)
