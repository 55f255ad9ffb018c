"""Events in the envelopes that other systems have made common, framed as each wire frames its own."""

from collections.abc import Callable, Iterable
from functools import lru_cache

from msgspec import structs

from tailrace.clock import Clock, SystemClock
from tailrace.delivery.column_encoder import encode_rows
from tailrace.delivery.encoded import Encoded
from tailrace.delivery.view import View
from tailrace.envelope.base import UnfitError, word_of
from tailrace.envelope.envelopes import envelope_of
from tailrace.model.chunk import Change, Chunk
from tailrace.model.errors import InvalidValueError
from tailrace.model.number import Index
from tailrace.model.op import Op
from tailrace.model.table import TableSchema
from tailrace.subscription.columns import project
from tailrace.subscription.filter import Rows
from tailrace.subscription.snapshot import ReadRows

__all__ = ["Frame", "encode_enveloped", "enveloped_rows"]

Frame = Callable[[int, bytes, bytes], bytes]

_CLOCK = SystemClock()
_SCHEMAS_KEPT = 1024


def encode_enveloped(chunk: Chunk, rows: Rows, view: View, frame: Frame, clock: Clock = _CLOCK) -> Encoded:
    """Return the events of the given rows of a chunk, each as `frame` makes it of its offset, its op and its value.

    Schema changes have no form in an envelope: they are nothing.

    Raises:
        InvalidValueError: The envelope has no form for a value; the message names the column.
    """
    now_us = clock.now_us()
    return encode_rows(
        chunk,
        rows,
        lambda: [
            b""
            if change.op is Op.SCHEMA
            else frame(change.offset, word_of(change, snapshot=False).encode(), _wrapped_change(change, view, now_us))
            for change in chunk.changes(rows)
        ],
    )


def enveloped_rows(rows: ReadRows, view: View, clock: Clock = _CLOCK) -> Iterable[bytes]:
    """Yield one value for each row of a snapshot, without a frame.

    Raises:
        InvalidValueError: The envelope has no form for a value; the message names the column.
    """
    now_us = clock.now_us()
    for key, image in zip(rows.keys, rows.images, strict=True):
        change = Change(rows.offset, Index(0), rows.time_us, 0, Op.INSERT, rows.schema, key, None, image)
        yield _wrapped_change(change, view, now_us, snapshot=True)


def _wrapped_change(change: Change, view: View, now_us: int, *, snapshot: bool = False) -> bytes:
    images = {"before": change.before, "after": change.after}
    wanted = {name: image if name in view.images else None for name, image in images.items()}
    schema = change.schema
    if view.columns:
        wanted = {name: None if image is None else project(image, view.columns) for name, image in wanted.items()}
        schema = _narrowed(schema, view.columns)
    try:
        id_ = f"{schema.table.source}/{change.offset}"
        shown = structs.replace(change, schema=schema, **wanted)
        wrapped = envelope_of(view.envelope).wrap(shown, id_, snapshot=snapshot, now_us=now_us)
    except UnfitError as error:
        raise InvalidValueError(
            f"the envelope {view.envelope} cannot represent the change at offset {change.offset}: {error}"
        ) from None
    assert wrapped.value is not None
    return wrapped.value


@lru_cache(_SCHEMAS_KEPT)
def _narrowed(schema: TableSchema, columns: tuple[str, ...]) -> TableSchema:
    """Return the schema of rows that are cut down to columns. Those of the key stay in it, and may be missing."""
    matching = [
        column if column.name in columns else structs.replace(column, nullable=True)
        for column in schema.columns
        if column.name in columns or column.name in schema.key_names
    ]
    return structs.replace(schema, columns=tuple(matching))
