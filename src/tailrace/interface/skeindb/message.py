"""Params and results of the RPC methods, and data of records between changes, members in the order of the wire. Pure.

Params are decoded strictly: an unknown member or a wrong type is an error that names the member.
"""

from collections.abc import Sequence
from typing import Annotated, Any

from msgspec import UNSET, Meta, Raw, Struct, UnsetType, field

from tailrace.delivery.http.place import OffsetParam, PlaceParams
from tailrace.envelope.envelopes import WHOLE
from tailrace.model.number import Offset
from tailrace.model.subscription import Format
from tailrace.subscription.stats import Alert, SubscriptionStats

__all__ = [
    "AckParams",
    "AckResult",
    "BackpressureEvent",
    "BackpressureResult",
    "CapabilitiesResult",
    "CloseParams",
    "CloseResult",
    "EndEvent",
    "ErrorEvent",
    "HeartbeatEvent",
    "ImportResult",
    "IncludeParams",
    "ListEntry",
    "ListResult",
    "NoParams",
    "PauseParams",
    "PauseResult",
    "PingResult",
    "PollParams",
    "PollResult",
    "ResetParams",
    "ResnapshotEvent",
    "Signature",
    "SnapshotEvent",
    "StatsResult",
    "SubscribeAnswer",
    "SubscribeParams",
    "SubscribeResult",
    "SubscribeTableParams",
    "UnsubscribeAnswer",
    "VersionResult",
]


class NoParams(Struct, frozen=True, forbid_unknown_fields=True):
    """Params of a method that takes none."""


class IncludeParams(Struct, frozen=True, forbid_unknown_fields=True):
    """Which row images are wanted."""

    before: bool = False
    after: bool = False


class SubscribeParams(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Params that all kinds of subscriptions have in common."""

    ops: list[str] | None = None
    include: IncludeParams | None = None
    format: Format | None = None
    pk: list[Any] | None = None
    pk_range: dict[str, Any] | None = None
    columns: list[str] | None = None
    where: str | None = None
    cel: str | None = None
    auto_ack: bool = False
    from_: str | OffsetParam | PlaceParams | None = field(name="from", default=None)


class SubscribeTableParams(SubscribeParams, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Params of `cdc.subscribe_table`."""

    table: str
    db: str | None = None
    shard: int | None = None
    snapshot: bool = False


class PollParams(Struct, frozen=True, forbid_unknown_fields=True):
    """Params of `cdc.poll`."""

    sub_id: str
    from_offset: OffsetParam
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 200
    wait_ms: Annotated[int, Meta(ge=0, le=60_000)] = 0
    envelope: Annotated[str, Meta(extra_json_schema={"enum": ["", *WHOLE]})] = ""
    """Envelope that changes are wrapped in; empty for our own events."""

    def __post_init__(self) -> None:
        if self.envelope not in ("", *WHOLE):  # the words of a `Literal` that does not fit name none that would
            raise ValueError(f"`envelope` is one of {', '.join(WHOLE)}")


class AckParams(Struct, frozen=True, forbid_unknown_fields=True):
    """Params of `cdc.ack`."""

    sub_id: str
    offset: OffsetParam


class PauseParams(Struct, frozen=True, forbid_unknown_fields=True):
    """Params of `cdc.pause` and `cdc.resume`."""

    sub_id: str


class ResetParams(Struct, frozen=True, forbid_unknown_fields=True):
    """Params of `cdc.reset`."""

    sub_id: str
    to: str | OffsetParam | PlaceParams


class CloseParams(Struct, frozen=True, forbid_unknown_fields=True):
    """Params of `cdc.close`."""

    sub_id: str


class PingResult(Struct, frozen=True):
    """Result of `system.ping`."""

    pong: bool
    time_unix_ms: int


class VersionResult(Struct, frozen=True):
    """Result of `system.version`."""

    name: str
    version: str
    skeinql: str


class CapabilitiesResult(Struct, frozen=True):
    """Result of `system.capabilities`."""

    methods: Sequence[str]
    formats: Sequence[str]
    ops: Sequence[str]


class SubscribeResult(Struct, frozen=True):
    """Result of `cdc.subscribe_table`."""

    sub_id: str
    offset: Offset
    sse_url: str
    ws_url: str


class BackpressureResult(Struct, frozen=True):
    """How near a subscription is to losing changes."""

    state: str
    lag: int
    remaining_until_resnapshot: int | None
    paused: bool


class PollResult(Struct, frozen=True, kw_only=True):
    """Result of `cdc.poll`. `events` are encoded already."""

    events: Raw
    next_offset: Offset
    earliest_offset: Offset
    latest_offset: Offset
    resnapshot_required: bool
    resnapshot_from_offset: Offset | UnsetType = UNSET
    resnapshot_reason: str | UnsetType = UNSET
    backpressure: BackpressureResult


class AckResult(Struct, frozen=True):
    """Result of `cdc.ack`."""

    sub_id: str
    acked_offset: Offset


class PauseResult(Struct, frozen=True):
    """Result of `cdc.pause` and `cdc.resume`."""

    sub_id: str
    paused: bool
    acked_offset: Offset
    backpressure: BackpressureResult


class ListEntry(Struct, frozen=True, kw_only=True):
    """One subscription in the result of `cdc.list`."""

    sub_id: str
    db: str
    table: str
    query_id: str | UnsetType = UNSET
    acked_offset: Offset
    paused: bool
    format: Format
    backpressure: BackpressureResult
    options: dict[str, Any]


class ListResult(Struct, frozen=True):
    """Result of `cdc.list`."""

    subscriptions: Sequence[ListEntry]


class StatsResult(Struct, frozen=True):
    """Result of `stats.snapshot`."""

    cdc: SubscriptionStats
    alerts: Sequence[Alert]


class ImportResult(Struct, frozen=True):
    """Result of `cdc.import`."""

    imported: int


class CloseResult(Struct, frozen=True):
    """Result of `cdc.close`."""

    sub_id: str
    closed: bool


class BackpressureEvent(Struct, frozen=True):
    """Data of a stream's event when the state of its subscription changed."""

    sub_id: str
    state: str
    lag: int
    remaining_until_resnapshot: int | None
    paused: bool
    earliest_offset: Offset
    latest_offset: Offset


class ErrorEvent(Struct, frozen=True):
    """Data of a stream's last event when its subscription cannot go on."""

    sub_id: str
    code: str
    message: str


class ResnapshotEvent(Struct, frozen=True):
    """Data of a stream's last event when its place was lost to retention."""

    sub_id: str
    earliest_offset: Offset
    latest_offset: Offset
    resnapshot_from_offset: Offset
    reason: str


class EndEvent(Struct, frozen=True):
    """Data of the record that ends one of the streams of a connection; the others go on."""

    sub_id: str
    reason: str


class HeartbeatEvent(Struct, frozen=True):
    """Data of a heartbeat: how far the feed has looked, matches or not."""

    sub_id: str
    scanned: Offset


class SnapshotEvent(Struct, frozen=True):
    """Data of the record that ends a snapshot: how many rows it had, and the offset after which changes follow."""

    sub_id: str
    offset: Offset
    rows: int


class SubscribeAnswer(Struct, frozen=True):
    """Data of the answer to `subscribe`: changes after `offset` follow."""

    sub_id: str
    offset: Offset


class UnsubscribeAnswer(Struct, frozen=True):
    """Data of the answer to `unsubscribe`: no record of the subscription follows."""

    sub_id: str


class Signature(Struct, frozen=True):
    """The types of an RPC method's params and result."""

    params: type[Struct]
    result: type[Struct]
