"""Results of calls, with the names of the HTTP interface. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar

from msgspec import Struct, field

from tailrace.client.event import Backpressure, Event

__all__ = [
    "Acknowledged",
    "Capabilities",
    "Closed",
    "PauseState",
    "Ping",
    "Poll",
    "Prepared",
    "QueryResult",
    "Subscribed",
    "SubscriptionInfo",
    "Version",
]

_T = TypeVar("_T")


class Ping(Struct, frozen=True):
    """The server lives."""

    pong: bool
    time_unix_ms: int


class Version(Struct, frozen=True):
    """What the server is. `skeinql` is the version of the envelope."""

    name: str
    version: str
    skeinql: str


class Capabilities(Struct, frozen=True):
    """What the server can do."""

    methods: tuple[str, ...]
    formats: tuple[str, ...] = ()
    ops: tuple[str, ...] = ()


class Subscribed(Struct, frozen=True):
    """A new subscription. Changes after `offset` are delivered."""

    sub_id: str
    offset: int
    sse_url: str
    ws_url: str = ""


class Acknowledged(Struct, frozen=True):
    """How far a subscription is acknowledged now."""

    sub_id: str
    acked_offset: int


class PauseState(Struct, frozen=True):
    """A subscription after it was paused or resumed."""

    sub_id: str
    paused: bool
    acked_offset: int
    backpressure: Backpressure


class Closed(Struct, frozen=True):
    """A subscription that is no more."""

    sub_id: str
    closed: bool


class Poll(Struct, Generic[_T], frozen=True, kw_only=True):
    """The answer to a poll. The next poll begins at `next_offset`.

    With `resnapshot_required` there are no events: those after the requested offset were removed by retention.
    """

    events: Sequence[Event[_T]]
    next_offset: int
    earliest_offset: int
    latest_offset: int
    backpressure: Backpressure
    resnapshot_required: bool = False
    resnapshot_from_offset: int | None = None
    resnapshot_reason: str | None = None


class SubscriptionInfo(Struct, frozen=True, kw_only=True):
    """One subscription as the server lists it."""

    sub_id: str
    db: str = ""
    table: str = ""
    query_id: str | None = None
    acked_offset: int = 0
    paused: bool = False
    format: str = ""
    backpressure: Backpressure | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


class Prepared(Struct, frozen=True):
    """A prepared query. `canonical` is the query as the server reads it."""

    query_id: str
    canonical: Any = None


class QueryResult(Struct, frozen=True, kw_only=True):
    """The result of a prepared query; without `data` where `not_modified` says that it is the one of the ETag given."""

    etag: str
    not_modified: bool = False
    data: Any = None
    deps: Mapping[str, Any] = field(default_factory=dict)
