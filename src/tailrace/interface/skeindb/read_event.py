"""Rows of a snapshot as events. Pure."""

import msgspec

from tailrace.interface.skeindb.present import FORMS
from tailrace.model.subscription import Format, Include
from tailrace.subscription.columns import project
from tailrace.subscription.snapshot import ReadRows

__all__ = ["READ", "read_events"]

READ = "read"
"""Op of an event that is a row of a snapshot."""


def read_events(rows: ReadRows, format_: Format, include: Include, columns: tuple[str, ...]) -> list[bytes]:
    """Return one JSON object for each row, members as in the event of a change."""
    key_form, image_form = FORMS[format_]
    table = rows.schema.table
    front = b'{"seq":%d,"db":%s,"table":%s,"op":"%s","pk":' % (
        rows.offset,
        msgspec.json.encode(table.source),
        msgspec.json.encode(table.wire),
        READ.encode(),
    )
    back = b',"commit_ts_ms":%d,"lsn":%d}' % (rows.time_us // 1000, rows.offset)
    events = []
    for key, image in zip(rows.keys, rows.images, strict=True):
        after = b""
        if include.after:
            after = b',"after":' + image_form(project(image, columns) if columns else image, rows.schema)
        events.append(b"".join([front, key_form(key, rows.schema), after, back]))
    return events
