"""The envelopes by name: how a message carries a change. Debezium's is in `tailrace.envelope.debezium`. Pure."""

import json
from datetime import UTC, datetime
from urllib.parse import quote

import msgspec

from tailrace.envelope.base import Envelope, Wrapped, plain_image, plain_key, plain_key_object, plain_row, word_of
from tailrace.envelope.debezium import DebeziumEnvelope
from tailrace.model.chunk import Change
from tailrace.model.errors import ConfigError
from tailrace.model.image import completed, lacks_cells
from tailrace.model.op import Op

__all__ = [
    "ENVELOPES",
    "OWN",
    "WHOLE",
    "BinaryCloudEvent",
    "MaxwellEnvelope",
    "OwnEnvelope",
    "RowEnvelope",
    "StructuredCloudEvent",
    "envelope_of",
]

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


_SNAPSHOT = b"bootstrap-insert"
"""Maxwell's type for rows of an initial copy."""


class MaxwellEnvelope:
    """`{"database":…,"table":…,"type":…,"ts":…,"xid":…,"primary_key":[…],"primary_key_columns":[…],"data":…,"old":…}`.

    `ts` is in seconds, as there; `xid` is the index of the commit. The type `truncate` is ours: Maxwell tells of none.
    A column that the source did not send is not in `data`, nor in `old`.
    """

    tombstones = False

    def wrap(self, change: Change, id_: str, *, snapshot: bool = False, now_us: int | None = None) -> Wrapped:
        """Return the envelope of a change."""
        schema, key = change.schema, plain_key(change)
        image = change.before if change.op is Op.DELETE else change.after
        data = plain_image(image, schema) or b"{}"
        value = (
            b'{"database":%s,"table":%s,"type":"%s","ts":%d,"xid":%d,"offset":%d,'
            b'"primary_key":%s,"primary_key_columns":%s,"data":%s%s}'
        ) % (
            msgspec.json.encode(schema.table.source),
            msgspec.json.encode(schema.table.wire),
            _SNAPSHOT if snapshot else Op(change.op).word.encode(),
            change.commit_time_us // 1_000_000,
            change.index,
            change.offset,
            key,
            msgspec.json.encode([column.name for column in schema.key_columns]),
            data,
            _old(change),
        )
        return Wrapped(value, key)


def _old(change: Change) -> bytes:
    """Return the member `old` of an update: what the columns that changed were before."""
    if change.op is not Op.UPDATE or change.before is None:
        return b""
    before, after = plain_row(change.before, change.schema) or {}, plain_row(change.after, change.schema) or {}
    old = {name: value for name, value in before.items() if name in after and after[name] != value}
    return b',"old":' + msgspec.json.encode(old)


_GONE = frozenset({Op.DELETE, Op.TRUNCATE})

_UNCHANGED_HEADER = "tailrace-unchanged"
"""Names the columns that were left out, as a JSON array in ASCII."""


class RowEnvelope:
    """The row after the change alone, `{"id":1,…}`, keyed by `{"id":1}`; nothing (a tombstone) once it is deleted.

    A truncation has no value either, and `{}` as its key: the header `tailrace-op` says that all rows are gone. What
    the source did not send after an update is taken from the row before; where that lacks it too, it is left out, and
    the header `tailrace-unchanged` beside the row names it.
    """

    tombstones = False

    def wrap(self, change: Change, id_: str, *, snapshot: bool = False, now_us: int | None = None) -> Wrapped:
        """Return the envelope of a change."""
        if change.op in _GONE:
            return Wrapped(None, plain_key_object(change))
        row, unsent = change.after, []
        if row is not None and lacks_cells(row, change.schema):
            row = row if change.before is None else completed(row, change.before)
            cells = msgspec.json.decode(row, type=dict[str, msgspec.Raw])
            unsent = [column.name for column in change.schema.columns if column.name not in cells]
        headers = ((_UNCHANGED_HEADER, json.dumps(unsent)),) if unsent else ()
        return Wrapped(plain_image(row, change.schema), plain_key_object(change), headers)


class OwnEnvelope:
    """The event that the HTTP interface sends, with commit, schema version and both images.

    `{"seq":…,"db":…,"table":…,"op":…,"pk":[…],"before":{…},"after":{…},"commit_ts_ms":…,"lsn":…,"index":…,…}`.
    A column that the source did not send is not in its image.
    """

    tombstones = True

    def wrap(self, change: Change, id_: str, *, snapshot: bool = False, now_us: int | None = None) -> Wrapped:
        """Return the envelope of a change."""
        key = plain_key(change)
        return Wrapped(own_event(change, key, snapshot=snapshot), key)


def own_event(change: Change, key: bytes, *, snapshot: bool) -> bytes:
    """Return a change as an event whose key is already written."""
    table = change.schema.table
    before, after = plain_image(change.before, change.schema), plain_image(change.after, change.schema)
    return b'{"seq":%d,"db":%s,"table":%s,"op":"%s","pk":%s%s%s,"commit_ts_ms":%d,"lsn":%d,"index":%d,"schema":%d}' % (
        change.offset,
        msgspec.json.encode(table.source),
        msgspec.json.encode(table.wire),
        word_of(change, snapshot=snapshot).encode(),
        key,
        b"" if before is None else b',"before":' + before,
        b"" if after is None else b',"after":' + after,
        change.commit_time_us // 1000,
        change.offset,
        change.index,
        change.schema.version,
    )


OWN = "tailrace"
"""Name of our own envelope, which is in force where none is named."""

ENVELOPES: dict[str, Envelope] = {
    OWN: OwnEnvelope(),
    "debezium": DebeziumEnvelope(with_schema=False),
    "debezium-schema": DebeziumEnvelope(with_schema=True),
    "cloudevents": StructuredCloudEvent(),
    "cloudevents-binary": BinaryCloudEvent(),
    "maxwell": MaxwellEnvelope(),
    "row": RowEnvelope(),
}


WHOLE = tuple(name for name in ENVELOPES if name not in {"cloudevents-binary", "row"})
"""Envelopes whose value says everything: nothing is beside it in headers, and a deleted row is sent, too."""


def envelope_of(name: str) -> Envelope:
    """Return the envelope of that name.

    Raises:
        ConfigError: There is none.
    """
    if name not in ENVELOPES:
        raise ConfigError(f"unknown envelope {name[:64]!r}; known: {', '.join(ENVELOPES)}")
    return ENVELOPES[name]
