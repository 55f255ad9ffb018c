"""CloudEvents 1.0: the change in an envelope that many systems can route, in its structured and its binary form."""

from datetime import UTC, datetime
from urllib.parse import quote

import msgspec

from tailrace.envelope.base import Wrapped, word_of
from tailrace.envelope.own import own_event
from tailrace.envelope.plain import plain_key
from tailrace.model.chunk import Change

__all__ = ["BinaryCloudEvent", "StructuredCloudEvent"]

_SEQUENCE_DIGITS = 20
"""Digits of the attribute `sequence`, so that it sorts as text."""


class StructuredCloudEvent:
    """Attributes and change in one JSON object (`application/cloudevents+json`)."""

    tombstones = True

    def wrap(self, change: Change, id_: str, *, snapshot: bool = False, now_us: int | None = None) -> Wrapped:
        """Return the envelope of a change."""
        key = plain_key(change)
        event = {**_attributes(change, id_, key, snapshot=snapshot), "datacontenttype": "application/json"}
        data = msgspec.Raw(own_event(change, key, snapshot=snapshot))
        value = msgspec.json.encode({**event, "data": data})
        return Wrapped(value, key, content_type="application/cloudevents+json; charset=utf-8")


class BinaryCloudEvent:
    """Attributes as headers that begin with `ce-`, the change as the value."""

    tombstones = True

    def wrap(self, change: Change, id_: str, *, snapshot: bool = False, now_us: int | None = None) -> Wrapped:
        """Return the envelope of a change."""
        key = plain_key(change)
        attributes = _attributes(change, id_, key, snapshot=snapshot)
        headers = tuple((f"ce-{name}", _header(value)) for name, value in attributes.items())
        return Wrapped(own_event(change, key, snapshot=snapshot), key, headers)


def _attributes(change: Change, id_: str, key: bytes, *, snapshot: bool) -> dict[str, str]:
    table = change.schema.table
    return {
        "specversion": "1.0",
        "id": id_,
        "source": f"/{quote(table.source, safe='')}/{quote(table.wire, safe='.')}",
        "type": f"tailrace.{word_of(change, snapshot=snapshot)}",
        "subject": key.decode(),
        "time": _time(change.commit_time_us),
        "sequence": f"{change.offset:0{_SEQUENCE_DIGITS}d}",
        "partitionkey": key.decode(),
    }


def _time(time_us: int) -> str:
    """Return a time as RFC 3339 writes it, to the microsecond."""
    seconds, micros = divmod(time_us, 1_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{micros:06d}Z"


def _header(value: str) -> str:
    """Return an attribute as a header: spaces, quotes, percent signs and what is not printable ASCII are encoded."""
    return quote(value, safe="!#$&'()*+,/:;<=>?@[]^`{|}~\\")
