"""Our own envelope: the event that the HTTP interface sends, with commit, schema version and both images."""

import msgspec

from tailrace.envelope.base import Wrapped, word_of
from tailrace.envelope.plain import plain_image, plain_key
from tailrace.model.chunk import Change

__all__ = ["OwnEnvelope"]


class OwnEnvelope:
    """`{"seq":…,"db":…,"table":…,"op":…,"pk":[…],"before":{…},"after":{…},"commit_ts_ms":…,"lsn":…,"index":…,…}`.

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
