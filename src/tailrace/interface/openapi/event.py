"""What comes over streams and from polls, as the OpenAPI document describes it. Pure.

Events of changes are put together as bytes (`interface/skeindb/present.py`), so their members are named here a second
time; the tests hold real events against it. Control records are described by the structs that they are made from.
"""

from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

from tailrace.delivery.problem import Problem
from tailrace.interface.skeindb.message import (
    AckResult,
    BackpressureEvent,
    EndEvent,
    ErrorEvent,
    HeartbeatEvent,
    PauseResult,
    ResnapshotEvent,
    SnapshotEvent,
    SubscribeAnswer,
    UnsubscribeAnswer,
)
from tailrace.interface.skeindb.query_message import ChangedEvent
from tailrace.model.number import Offset

__all__ = ["ANSWERS", "QUERY_RECORDS", "RECORDS", "RECORDS_OF_MANY", "Event", "Frame"]


class DeltaMember(Struct, frozen=True):
    """How the result of a query differs from the one with the ETag `since`: rows added and rows removed."""

    since: str
    added: list[list[Any]]
    removed: list[list[Any]]
    reordered: bool


class ResultMember(Struct, frozen=True):
    """The new result of a query."""

    columns: list[str]
    rows: list[list[Any]]


class Event(Struct, frozen=True, kw_only=True):
    """A change, a row of a snapshot (`read`), or the invalidation of a query (`invalidate`).

    `truncate` removes all rows of the table at once: its `pk` is empty, and it has no images.

    Values of `pk`, `before` and `after` are typed literals in the format `objects_json`, ordinary JSON in `plain_json`.
    """

    seq: Offset
    db: str
    table: str
    op: Literal["insert", "update", "delete", "truncate", "read", "invalidate"]
    pk: list[Any]
    before: dict[str, Any] | UnsetType = UNSET
    after: dict[str, Any] | UnsetType = UNSET
    query_id: str | UnsetType = UNSET
    etag: str | UnsetType = UNSET
    result: ResultMember | UnsetType = UNSET
    delta: DeltaMember | UnsetType = UNSET
    result_omitted: bool | UnsetType = UNSET
    commit_ts_ms: int
    lsn: Offset


class Frame(Struct, frozen=True, kw_only=True):
    """A frame of a WebSocket. `sub_id` is there on a connection of many, `id` where it has a place in the log."""

    sub_id: str | UnsetType = UNSET
    id: Offset | UnsetType = UNSET
    event: str
    data: dict[str, Any]


RECORDS: dict[str, type[Struct]] = {
    "insert": Event,
    "update": Event,
    "delete": Event,
    "truncate": Event,
    "read": Event,
    "invalidate": Event,
    "backpressure": BackpressureEvent,
    "heartbeat": HeartbeatEvent,
    "snapshot": SnapshotEvent,
    "resnapshot": ResnapshotEvent,
    "error": ErrorEvent,
}
"""What `data` is by the name of a record, on a stream of one subscription."""

RECORDS_OF_MANY: dict[str, type[Struct]] = {**RECORDS, "end": EndEvent}
"""The same on a stream of many; each `data`, or frame, begins with `sub_id`."""

QUERY_RECORDS: dict[str, type[Struct]] = {"message": ChangedEvent}
"""The same on the stream of a query, whose records have no name; browsers call them `message`."""

ANSWERS: dict[str, type[Struct]] = {
    "ack": AckResult,
    "pause": PauseResult,
    "resume": PauseResult,
    "subscribe": SubscribeAnswer,
    "unsubscribe": UnsubscribeAnswer,
    "error": Problem,
}
"""What `data` is by the name of a frame that answers a command."""
