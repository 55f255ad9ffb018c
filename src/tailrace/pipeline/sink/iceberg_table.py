"""What all modes of an Iceberg sink share: a table's columns, its rows, the commit of a batch, what its errors mean."""

import itertools
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.io.pyarrow import ArrowScan, _dataframe_to_data_files
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table, Transaction
from sqlalchemy.exc import SQLAlchemyError

from tailrace.model.errors import SinkRefusedError, SinkUnavailableError
from tailrace.model.table import TableSchema
from tailrace.pipeline.evolve import fitted, usual
from tailrace.pipeline.sink.shape import followed

__all__ = ["FILES_MAX", "FILE_BYTES", "evolve", "iceberg_errors", "plain", "read", "write"]

FILES_MAX = 100
"""How many small files a table may have before they are put together."""

_SMALL_BYTES = 4 << 20

FILE_BYTES = 128 << 20
"""Size of the rows of a file in memory."""

_WAITING_BYTES = FILE_BYTES
"""Rows that are written again wait for others until they are as many: so much is in memory, and one file besides."""

Rewrite = Callable[[pa.Table], pa.Table]


def write(table: Table, new: pa.Table, noted: Mapping[str, str], near: BooleanExpression, rewrite: Rewrite) -> None:
    """Add rows, and replace the files near them whose rows `rewrite` changes, in one snapshot with what is noted.

    Small files are put together on the way where there are many.
    """
    removed = []
    added = _Files(table, table.metadata)
    added.write(fitted(new, plain(table.schema().as_arrow())))
    small = _small(table)
    tasks = {task.file.file_path: task for task in table.scan(row_filter=near).plan_files()} | small
    for path, task in tasks.items():
        rows = _rows(table, task)
        changed = rewrite(rows)
        if changed is not rows or path in small:
            removed.append(task.file)
            added.write(changed)
    files = added.close()
    with _transaction(table) as transaction:
        transaction.set_properties(dict(noted))
        producer = transaction.update_snapshot(snapshot_properties=dict(noted))
        with producer.overwrite() if removed else producer.fast_append() as snapshot:
            _replace(snapshot, removed, files)


def evolve(table: Table, columns: pa.Schema) -> None:
    """Give a table the columns that it lacks, and the types that hold both, in a commit of its own.

    A table that gets a type is written again, file by file: its size does not matter.
    """
    present = plain(table.schema().as_arrow())
    target = followed(present, columns)
    retyped = [field.name for field in present if target.field(field.name).type != field.type]
    if retyped:
        tasks = list(table.scan().plan_files())
        with _transaction(table) as transaction:
            with transaction.update_schema(allow_incompatible_changes=True) as update:
                for name in retyped:
                    update.delete_column((name,))
            with transaction.update_schema() as update:
                update.union_by_name(target)
            metadata = transaction.table_metadata
            wanted = plain(metadata.schema().as_arrow())
            added = _Files(table, metadata)
            for task in tasks:
                added.write(fitted(_rows(table, task), wanted))
            files = added.close()
            with transaction.update_snapshot().overwrite() as snapshot:
                _replace(snapshot, [task.file for task in tasks], files)
    elif len(target) > len(present):
        with table.update_schema() as update:
            update.union_by_name(target)


def read(table: Table, names: Sequence[str], near: BooleanExpression) -> pa.Table:
    """Return columns of the rows of a table for which something holds."""
    found = table.scan(row_filter=near, selected_fields=tuple(names)).to_arrow().select(list(names))
    return fitted(found, plain(found.schema))


def plain(schema: pa.Schema) -> pa.Schema:
    """Return a schema without what Iceberg notes in it, with the types that we use ourselves."""
    return pa.schema([(field.name, usual(field.type)) for field in schema])


@contextmanager
def iceberg_errors(schema: TableSchema) -> Iterator[None]:
    """Raise what pyiceberg says as an error of the sink. Its own words may hold values and are not repeated."""
    wire = schema.table.wire
    try:
        yield
    except CommitFailedException:
        raise SinkUnavailableError(f"table {wire}: another writer committed to the Iceberg table") from None
    except SQLAlchemyError as error:
        raise SinkUnavailableError(f"table {wire}: the catalog of the Iceberg tables failed") from error
    except (ValueError, pa.ArrowException) as error:
        reason = f"the Iceberg table does not take these columns ({type(error).__name__})"
        raise SinkRefusedError(reason, table=wire) from None


class _Files:
    """Writes rows into new files of a table, which nobody sees before a commit names them."""

    def __init__(self, table: Table, metadata: Any) -> None:
        self._io = table.io
        self._metadata = metadata
        self._id = uuid.uuid4()
        self._numbers = itertools.count()
        self._waiting: list[pa.Table] = []
        self._files: list[DataFile] = []

    def write(self, rows: pa.Table) -> None:
        """Write some rows. Few of them wait for more, so that they come into one file."""
        self._waiting.append(rows)
        if sum(one.nbytes for one in self._waiting) >= _WAITING_BYTES:
            self._end()

    def close(self) -> list[DataFile]:
        """Return the files."""
        self._end()
        return self._files

    def _end(self) -> None:
        rows, self._waiting = [one for one in self._waiting if one.num_rows], []
        if rows:
            whole = pa.concat_tables(rows)
            self._files += _dataframe_to_data_files(self._metadata, whole, self._io, self._id, self._numbers)


def _rows(table: Table, task: Any) -> pa.Table:
    """Return the rows of one file."""
    scan = ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue())
    return fitted(scan.to_table([task]), plain(table.schema().as_arrow()))


def _small(table: Table) -> dict[str, Any]:
    """Return the small files of a table by their paths, where there are too many."""
    small = {
        task.file.file_path: task for task in table.scan().plan_files() if task.file.file_size_in_bytes < _SMALL_BYTES
    }
    return small if len(small) > FILES_MAX else {}


def _replace(snapshot: Any, removed: Sequence[DataFile], added: Sequence[DataFile]) -> None:
    for file in removed:
        snapshot.delete_data_file(file)
    for file in added:
        snapshot.append_data_file(file)


def _transaction(table: Table) -> Transaction:
    """Return a transaction that fails where someone else has committed meanwhile.

    That may have been another worker with this very batch: pyiceberg would bring its rows once more, on top of those.
    """
    properties = {**table.metadata.properties, "commit.retry.num-retries": "0"}
    table.metadata = table.metadata.model_copy(update={"properties": properties})
    return table.transaction()
