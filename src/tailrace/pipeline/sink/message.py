"""Message targets as a sink of pipelines: a batch of typed columns becomes changes, which the outbox delivers."""

import base64
import math
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import Any, Protocol

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.model.chunk import Change
from tailrace.model.errors import SinkRefusedError
from tailrace.model.image import NO_KEY
from tailrace.model.table import Kind, TableSchema
from tailrace.model.value import to_literal
from tailrace.pipeline.image_rows import ChangeColumns, changes_of_images, joined_changes
from tailrace.pipeline.sink.base import Batch, ChangeType, SinkTraits, TableChanges
from tailrace.pipeline.sink.progress import KeepsProgress, after, decode, encode, has
from tailrace.pipeline.sink.row import key_names
from tailrace.pipeline.typed import hidden_key
from tailrace.pipeline.unchanged import lacking

__all__ = ["MessageSink", "changes_of", "changes_of_columns"]


class _Outbox(Protocol):
    """What this sink needs of an outbox; see `tailrace.message.outbox.Outbox`."""

    @property
    def mark(self) -> bytes | None:
        """Return the mark of the last batch that the target has, where it keeps marks."""

    def open(self, schemas: Sequence[TableSchema]) -> None:
        """Connect."""

    def deliver(self, changes: Sequence[Change], mark: bytes, *, snapshot: bool = False) -> None:
        """Send changes."""

    def tend(self) -> int:
        """Resend dead letters marked for retry."""

    def close(self) -> None:
        """Disconnect."""


class MessageSink(KeepsProgress):
    """Sends each change as a message, in the order of offsets.

    A target that keeps marks has each message once. With others a batch that is given again is sent again, unless this
    very sink has sent it; its messages are known by their ids. What the target refuses is parked. A target of messages
    keeps nothing that could be read back and verified.
    """

    def __init__(self, outbox: _Outbox, release: Callable[[], None] | None = None) -> None:
        """Send through an outbox. `release` is called when the sink is closed: it lets go of what the outbox uses."""
        self._outbox = outbox
        self._release = release

    @property
    def traits(self) -> SinkTraits:
        """Return that it has dead letters."""
        return SinkTraits(retry_letters=self.tend)

    def open(self, schemas: Sequence[TableSchema]) -> None:
        """Connect; see `Sink.open`."""
        self._outbox.open(schemas)
        mark = self._outbox.mark
        self._progress = None if mark is None else decode(mark)

    def apply(self, batch: Batch) -> None:
        """Send a batch, and letters that are to be sent again; see `Sink.apply`."""
        if has(self._progress, batch):
            return
        progress = after(self._progress, batch)
        self._outbox.deliver(changes_of(batch), encode(progress), snapshot=_is_snapshot(batch))
        self._progress = progress
        self._outbox.tend()

    def tend(self) -> int:
        """Send letters that are to be sent again, where there is no batch; return how many have arrived."""
        return self._outbox.tend()

    def rows(self, schema: TableSchema) -> Iterator[pa.RecordBatch]:
        """There are none.

        Raises:
            SinkRefusedError: Always.
        """
        raise SinkRefusedError("a sink of messages stores nothing that can be verified")

    def close(self) -> None:
        """Disconnect."""
        self._outbox.close()
        if self._release is not None:
            self._release()


def changes_of(batch: Batch) -> list[Change]:
    """Return the changes of a batch in the order of their offsets."""
    changes: list[Change] = []
    for one in batch.tables:
        changes += changes_of_images(one) if one.images else changes_of_columns(one)
    if len(batch.tables) > 1:
        changes.sort(key=attrgetter("offset"))
    return changes


def _is_snapshot(batch: Batch) -> bool:
    """Tell whether a batch is of rows as they were read. No batch has such rows and changes."""
    reads = (pc.any(pc.equal(one.changes["_change_type"], str(ChangeType.READ))).as_py() for one in batch.tables)
    return any(reads)


_ENCODE = msgspec.json.Encoder().encode


# Columns are converted as a whole where possible, not cell by cell: that is most of the cost of a batch.
def changes_of_columns(one: TableChanges) -> Iterator[Change]:
    """Yield the changes of a table with typed columns, in order."""
    table, schema = one.changes, one.schema
    cells = {column.name: _natural(table[column.name], column.kind) for column in schema.columns}
    names = list(cells)
    rows_cells = [dict(zip(names, row, strict=True)) for row in zip(*cells.values(), strict=True)]
    for name, mask in lacking(table).items():
        for row in mask.nonzero()[0].tolist():
            del rows_cells[row][name]
    images = [_ENCODE(row) for row in rows_cells]
    key_cells = _key_cells(table, schema, cells)
    keys = [_ENCODE(key) for key in zip(*key_cells, strict=True)] if key_cells else [NO_KEY] * len(table)
    types, offsets, indexes = (table[name].to_pylist() for name in ("_change_type", "_offset", "_commit_version"))
    times = table["_commit_timestamp"].cast(pa.int64()).to_pylist()
    rows = ChangeColumns(types, offsets, indexes, times, [0] * len(types), keys, images)
    return joined_changes(rows, schema)


def _key_cells(table: pa.Table, schema: TableSchema, cells: dict[str, list[Any]]) -> list[list[Any]]:
    if hidden_key(schema) is not None:
        return [table[name].to_pylist() for name in key_names(schema)]
    return [cells[name] for name in schema.key_names]


def _natural(column: pa.ChunkedArray, kind: Kind) -> list[Any]:
    """Return the natural JSON forms of a column's values."""
    type_ = column.type
    if pa.types.is_floating(type_):
        values = list(column.to_pylist())
        if pc.all(pc.is_finite(column)).as_py() is not False:
            return values
        return [value if value is None or math.isfinite(value) else to_literal(value) for value in values]
    if pa.types.is_binary(type_):
        texts = [None if value is None else base64.b64encode(value).decode() for value in column.to_pylist()]
        return texts if kind is Kind.BYTES else [text and {"t": "bytes", "b64": text} for text in texts]
    if pa.types.is_timestamp(type_):
        texts = _trimmed(pc.strftime(column, format="%Y-%m-%d %H:%M:%S"), zoned=type_.tz is not None)
        return texts if kind is Kind.DATETIME else [text and {"t": "datetime", "iso": text} for text in texts]
    if pa.types.is_decimal(type_):
        texts = column.cast(pa.string()).to_pylist()
        if kind is Kind.U64:
            return [None if text is None else int(text) for text in texts]
        return texts if kind is Kind.DEC else [text and {"t": "dec", "v": text} for text in texts]
    if pa.types.is_boolean(type_) or pa.types.is_integer(type_) or pa.types.is_string(type_):
        return list(column.to_pylist())
    texts = column.cast(pa.string()).to_pylist()
    return texts if kind is Kind.DATE else [text and {"t": "date", "iso": text} for text in texts]


def _trimmed(texts: pa.ChunkedArray, *, zoned: bool) -> list[Any]:
    """Return times without fractions that are zero, with `+00` behind where they have a zone."""
    short = pc.replace_substring_regex(texts, r"\.?0+$", "") if _has_fraction(texts) else texts
    whole = pc.if_else(pc.match_substring(texts, "."), short, texts)
    return list((pc.binary_join_element_wise(whole, "+00", "") if zoned else whole).to_pylist())


def _has_fraction(texts: pa.ChunkedArray) -> bool:
    return bool(pc.any(pc.match_substring(texts, ".")).as_py())
