"""What all ways to write a Delta table share: its columns, the note of a batch in its log, what its errors mean."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake import Schema as DeltaSchema
from deltalake.exceptions import CommitFailedError, DeltaError, DeltaProtocolError, SchemaMismatchError
from msgspec import Struct
from pyarrow.fs import LocalFileSystem

from tailrace.model.errors import SinkRefusedError, SinkUnavailableError
from tailrace.model.table import TableSchema
from tailrace.pipeline.errors import SinkMovedError
from tailrace.pipeline.evolve import fitted
from tailrace.pipeline.sink.base import TableMark
from tailrace.pipeline.sink.delta_lake import DeltaLake
from tailrace.pipeline.sink.object_error import object_error, said_by_objects
from tailrace.pipeline.sink.shape import followed, is_ours
from tailrace.pipeline.sink.storage import Storage

__all__ = ["FirstKey", "Notes", "delta_errors", "evolve", "files_near", "is_ordered", "is_plain", "opened"]

_FILE_BYTES = 32 << 20
"""Size of the files of a table that is written again: as much is in memory."""

_FEATURES = {"appendOnly", "invariants", "timestampNtz"}
"""What a table may have of the Delta protocol to be read and written as files: nothing that asks more."""

_DEMANDING = ("delta.constraints.", "delta.enableChangeDataFeed", "delta.columnMapping.")
"""Settings of a table that ask more."""

_OS_ERROR = re.compile(r"\(os error (\d+)\)")
"""How delta-rs names what the system says."""

_INVALID = "Invalid data found"
"""How delta-rs begins to tell, with its values, which rows break a rule of the table."""


class Notes:
    """What a pipeline notes in the log of a table: its last batch, and the highest offset of its changes.

    The offset that a batch brings the table to is noted with its number: what follows on it may be cut anywhere.
    """

    def __init__(self, pipeline: str) -> None:
        self._batch = f"tailrace:{pipeline}"
        self._highest = f"tailrace:{pipeline}:highest"
        self._through = f"tailrace:{pipeline}:through"

    def mark(self, table: DeltaTable) -> TableMark | None:
        """Return the last batch that a table has; None for none."""
        number: int | None = table.transaction_version(self._batch)
        return None if number is None else TableMark(number, table.transaction_version(self._through))

    def highest(self, table: DeltaTable) -> int | None:
        """Return the highest offset of the changes that a table has; None for none."""
        found: int | None = table.transaction_version(self._highest)
        return found

    def commit(self, table: DeltaTable, given: TableMark, highest: int) -> CommitProperties:
        """Return what notes a batch in the commit that brings it: two commits of one batch cannot both succeed."""
        noted = [(self._batch, given.number), (self._highest, max(self.highest(table) or 0, highest))]
        if given.through is not None:
            noted.append((self._through, given.through))
        transactions = [Transaction(name, version) for name, version in noted]
        return CommitProperties(app_transactions=transactions)


def opened(lake: DeltaLake, schema: TableSchema, columns: pa.Schema) -> DeltaTable:
    """Return a table, made with these columns if there is none."""
    if not lake.exists(schema):
        _refuse_alike(columns)
        lake.make(schema, columns)
    return lake.table(schema)


def evolve(table: DeltaTable, files: Storage, columns: pa.Schema) -> pa.Schema:
    """Give a table with these files the columns that it lacks, and the types that hold both, in a commit of its own.

    A table that gets a type is written again, some rows at a time: its size does not matter.
    """
    present = pa.schema(table.schema().to_arrow())
    target = followed(present, columns)
    _refuse_alike(target)
    if any(target.field(field.name).type != field.type for field in present):
        rows = _refitted(table.to_pyarrow_dataset(filesystem=_LOCAL), files, target)
        stream = pa.RecordBatchReader.from_batches(target, rows)
        write_deltalake(table, stream, mode="overwrite", schema_mode="overwrite", target_file_size=_FILE_BYTES)
    elif len(target) > len(present):
        added = DeltaSchema.from_arrow(pa.schema(list(target)[len(present) :]))
        table.alter.add_columns(added.fields)
    return target


_LOCAL = LocalFileSystem()


def _refitted(dataset: Any, files: Storage, target: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a table with the columns of `target`, file by file, nothing ahead of who takes them.

    Files are not read through the file system of delta-rs, which cannot be asked while delta-rs writes.
    """
    for one in dataset.get_fragments():
        with files.fetched(one.path) as path:
            file = one.format.make_fragment(str(path), _LOCAL, partition_expression=one.partition_expression)
            for some in file.to_batches(schema=dataset.schema, batch_readahead=0, use_threads=False):
                yield from fitted(pa.table(some), target).to_batches()


def _refuse_alike(columns: pa.Schema) -> None:
    """Check that no two columns differ only in the case of their letters.

    Raises:
        SinkRefusedError: Two do: a Delta table cannot have them.
    """
    known: dict[str, str] = {}
    for name in columns.names:
        other = known.setdefault(name.lower(), name)
        if other != name:
            raise SinkRefusedError(
                f"a Delta table cannot have both columns {other!r} and {name!r}, which differ only in case: rename "
                "one in the transformation"
            )


def is_plain(table: DeltaTable) -> bool:
    """Tell whether files with columns of our types, and a commit, are all that a table asks of readers and writers."""
    protocol, metadata = table.protocol(), table.metadata()
    features = {*(protocol.reader_features or ()), *(protocol.writer_features or ())}
    demanding = any(name.startswith(_DEMANDING) for name in metadata.configuration)
    old = not features and protocol.min_writer_version > 2
    ours = all(is_ours(field.type) for field in pa.schema(table.schema().to_arrow()))
    return features <= _FEATURES and not demanding and not old and not metadata.partition_columns and ours


class FirstKey(Struct, frozen=True):
    """The first column of a key, with the least and the greatest value that is sought, where those are known."""

    field: pa.Field
    least: Any = None
    greatest: Any = None


def files_near(table: DeltaTable, first: FirstKey) -> list[tuple[str, int | None]]:
    """Return the files of a table that may hold one of some keys, in order of keys, each with its rows if known.

    Paths are as the table's log has them. Statistics are trusted for types that all writers tell exactly.
    """
    files = pa.table(table.get_add_actions(flatten=False)).to_pylist()
    if first.least is not None and is_ordered(first.field.type):
        name = first.field.name
        bounds = [((one.get("min") or {}).get(name), (one.get("max") or {}).get(name)) for one in files]
        near = [
            (one, least)
            for one, (least, greatest) in zip(files, bounds, strict=True)
            if (least is None or least <= first.greatest) and (greatest is None or greatest >= first.least)
        ]
        known = sorted(((one, least) for one, least in near if least is not None), key=lambda pair: pair[1])
        files = [*(one for one, _ in known), *(one for one, least in near if least is None)]
    return [(one["path"], one["num_records"]) for one in files]


def is_ordered(type_: pa.DataType) -> bool:
    """Tell whether bounds of such values are surely stored as they are: decimals and times are rounded by writers."""
    return bool(pa.types.is_integer(type_) or pa.types.is_string(type_) or pa.types.is_date32(type_))


@contextmanager
def delta_errors(schema: TableSchema) -> Iterator[None]:
    """Raise what delta-rs says as an error of the sink. Its own words may hold values of rows and are not repeated."""
    wire = schema.table.wire
    try:
        yield
    except CommitFailedError:
        raise SinkUnavailableError(f"table {wire}: another writer committed to the Delta table") from None
    except SinkMovedError:
        raise
    except SinkRefusedError as error:
        raise SinkRefusedError(error.reason, table=wire, key=error.key) from None
    except (SchemaMismatchError, DeltaProtocolError, pa.ArrowException) as error:
        reason = f"the Delta table does not take these columns ({type(error).__name__})"
        raise SinkRefusedError(reason, table=wire) from None
    except DeltaError as error:
        if _INVALID in str(error):
            raise SinkRefusedError("a row breaks a constraint of the Delta table", table=wire) from None
        if said_by_objects(str(error)):
            raise object_error(f"table {wire}", str(error)) from None
        system = _OS_ERROR.search(str(error))
        why = f": {os.strerror(int(system[1]))}" if system else ""
        raise SinkUnavailableError(f"table {wire}: the Delta table failed{why}") from None
