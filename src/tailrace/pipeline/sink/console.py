"""Changes on the console, for people who look."""

from collections.abc import Iterator, Sequence
from typing import BinaryIO

import msgspec
import pyarrow as pa

from tailrace.model.errors import SinkRefusedError, SinkUnavailableError
from tailrace.model.table import TableSchema
from tailrace.pipeline.sink.base import Batch, Progress
from tailrace.pipeline.sink.jsonl import json_rows
from tailrace.pipeline.sink.progress import KeepsProgress

__all__ = ["ConsoleSink"]

_ROWS_AT_ONCE_MAX = 10_000


class ConsoleSink(KeepsProgress):
    """One line of JSON a change, with `_table` in front. Mode `append` alone.

    Keeps nothing: a batch that is given again is shown again unless this very sink has shown it, a batch that fails may
    have been shown in part, and there is nothing to verify.
    """

    def __init__(self, output: BinaryIO) -> None:
        self._output = output

    def open(self, schemas: Sequence[TableSchema]) -> None:
        """There is nothing to make."""

    def apply(self, batch: Batch) -> None:
        """Show a batch."""
        if self._progress is not None and batch.number <= self._progress.number:
            return
        try:
            for one in batch.tables:
                wire = one.schema.table.wire
                for part in one.changes.to_batches(max_chunksize=_ROWS_AT_ONCE_MAX):
                    lines = ({"_table": wire, **row} for row in json_rows(pa.table(part)))
                    self._output.write(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
            self._output.flush()
        except OSError:
            raise SinkUnavailableError("nobody reads the console any more") from None
        self._progress = Progress(batch.number, dict(batch.offsets))

    def rows(self, schema: TableSchema) -> Iterator[pa.RecordBatch]:
        """There are none.

        Raises:
            SinkRefusedError: Always.
        """
        raise SinkRefusedError("a console keeps nothing that could be verified")

    def close(self) -> None:
        """The console stays."""
