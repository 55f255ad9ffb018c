"""Message targets as a sink of pipelines: a batch of typed columns becomes changes, which the outbox delivers."""

from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.model.chunk import Change
from tailrace.model.errors import SinkRefusedError
from tailrace.model.table import TableSchema
from tailrace.pipeline.image_rows import changes_of_images
from tailrace.pipeline.sink.base import Batch, ChangeType, SinkTraits
from tailrace.pipeline.sink.natural import changes_of_columns
from tailrace.pipeline.sink.progress import KeepsProgress, after, decode, encode, has

__all__ = ["MessageSink", "changes_of"]


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
