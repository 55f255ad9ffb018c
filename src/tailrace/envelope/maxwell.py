"""Maxwell's envelope: the row, and in an update the columns that were otherwise before."""

import msgspec

from tailrace.envelope.base import Wrapped
from tailrace.envelope.plain import plain_image, plain_key, plain_row
from tailrace.model.chunk import Change
from tailrace.model.op import Op

__all__ = ["MaxwellEnvelope"]

_SNAPSHOT = b"bootstrap-insert"


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
