"""Tailrace from Python: subscriptions and calls over HTTP. See docs/reference/client.md.

with Client("http://127.0.0.1:8080") as client:
    for event in client.subscribe("app", "users"):
        print(event.op, event.pk, event.after)
"""

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
from tailrace.client.options import ClientOptions
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
