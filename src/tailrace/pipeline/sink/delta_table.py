"""What all ways to write a Delta table share: its columns, the note of a batch in its log, what its errors mean."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake import Schema as DeltaSchema
from deltalake.exceptions import CommitFailedError, DeltaError, DeltaProtocolError, SchemaMismatchError
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

from tailrace.model.errors import SinkRefusedError, SinkUnavailableError
from tailrace.model.table import TableSchema
from tailrace.pipeline.evolve import fitted, united
from tailrace.pipeline.sink.progress import has_number

__all__ = ["Notes", "delta_errors", "evolve"]

_FILE_BYTES = 32 << 20
"""Size of the files of a table that is written again: as much is in memory."""


class Notes:
    """What a pipeline notes in the log of a table: its last batch, and the highest offset of its changes."""

    def __init__(self, pipeline: str) -> None:
        self._batch = f"tailrace:{pipeline}"
        self._highest = f"tailrace:{pipeline}:highest"

    def has(self, table: DeltaTable, number: int) -> bool:
        """Tell whether a table has a batch.

        Raises:
            SinkRefusedError: It has a later one.
        """
        return has_number(self.number(table), number)

    def number(self, table: DeltaTable) -> int | None:
        """Return the number of the last batch that a table has; None for none."""
        found: int | None = table.transaction_version(self._batch)
        return found

    def highest(self, table: DeltaTable) -> int | None:
        """Return the highest offset of the changes that a table has; None for none."""
        found: int | None = table.transaction_version(self._highest)
        return found

    def commit(self, table: DeltaTable, number: int, highest: int) -> CommitProperties:
        """Return what notes a batch in the commit that brings it: two commits of one batch cannot both succeed."""
        noted = [(self._batch, number), (self._highest, max(self.highest(table) or 0, highest))]
        transactions = [Transaction(name, version) for name, version in noted]
        return CommitProperties(app_transactions=transactions)


def evolve(table: DeltaTable, directory: str, columns: pa.Schema) -> pa.Schema:
    """Give the table in a directory the columns that it lacks, and the types that hold both, in a commit of its own.

    A table that gets a type is written anew, some rows at a time: its size does not matter.
    """
    present = pa.schema(table.schema().to_arrow())
    target = united(present, columns)
    if any(target.field(field.name).type != field.type for field in present):
        # Not through the file system of delta-rs, which cannot be asked while delta-rs writes.
        files = SubTreeFileSystem(directory, LocalFileSystem())
        rows = _refitted(table.to_pyarrow_dataset(filesystem=files), target)
        stream = pa.RecordBatchReader.from_batches(target, rows)
        write_deltalake(table, stream, mode="overwrite", schema_mode="overwrite", target_file_size=_FILE_BYTES)
    elif len(target) > len(present):
        added = DeltaSchema.from_arrow(pa.schema(list(target)[len(present) :]))
        table.alter.add_columns(added.fields)
    return target


def _refitted(dataset: Any, target: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a table with the columns of `target`, file by file, nothing ahead of who takes them."""
    for file in dataset.get_fragments():
        for some in file.to_batches(schema=dataset.schema, batch_readahead=0, use_threads=False):
            yield from fitted(pa.table(some), target).to_batches()


@contextmanager
def delta_errors(schema: TableSchema) -> Iterator[None]:
    """Raise what delta-rs says as an error of the sink. Its own words may hold values of rows and are not repeated."""
    wire = schema.table.wire
    try:
        yield
    except CommitFailedError:
        raise SinkUnavailableError(f"table {wire}: somebody else committed to the Delta table") from None
    except (SchemaMismatchError, DeltaProtocolError, pa.ArrowInvalid) as error:
        reason = f"the Delta table does not take these columns ({type(error).__name__})"
        raise SinkRefusedError(reason, table=wire) from None
    except DeltaError as error:
        raise SinkUnavailableError(f"table {wire}: the Delta table failed") from error
