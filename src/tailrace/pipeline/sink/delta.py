"""Delta Lake tables, written by the driver through delta-rs."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import assert_never

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake import Schema as DeltaSchema
from deltalake.exceptions import CommitFailedError, DeltaError, DeltaProtocolError, SchemaMismatchError

from tailrace.model.errors import SinkRefusedError, SinkUnavailableError
from tailrace.model.table import TableSchema
from tailrace.pipeline.evolve import aligned, fitted, united
from tailrace.pipeline.fold import DELETED, OFFSET, fold_current, fold_history, last_known
from tailrace.pipeline.sink.base import ChangeType, Mode, TableChanges
from tailrace.pipeline.sink.progress import highest
from tailrace.pipeline.sink.replay import column_names, replayed
from tailrace.pipeline.sink.row import key_names
from tailrace.pipeline.sink.shape import columns_of, is_late
from tailrace.sink_url import spelled

__all__ = ["FILES_MAX", "DeltaTables"]

FILES_MAX = 100
"""How many files a table may have before its small ones are put together."""

_CLOSING = "_closing"
"""Column of a merge into a history: tells rows that end a version from rows that are one."""


class DeltaTables:
    """Delta tables in local directories, one for each table by a template of its path.

    The batch's number is a transaction of the application `tailrace:PIPELINE` in the table's log.
    """

    def __init__(self, template: str, mode: Mode, pipeline: str) -> None:
        self._template = template
        self._mode = mode
        self._application = f"tailrace:{pipeline}"

    def place(self, schema: TableSchema) -> str:
        """Return the directory of a table."""
        return spelled(self._template, schema.table, _file_name)

    def directory(self, schema: TableSchema) -> Path:
        """Return the directory of a table."""
        return Path(self.place(schema))

    def exists(self, schema: TableSchema) -> bool:
        """Tell whether a table is there."""
        return DeltaTable.is_deltatable(self.place(schema))

    def apply(self, one: TableChanges, number: int) -> None:
        """Commit the changes of one table, unless it has this batch."""
        with _delta_errors(one.schema):
            columns = columns_of(one, self._mode)
            if not self.exists(one.schema):
                DeltaTable.create(self.place(one.schema), columns)
            table = DeltaTable(self.place(one.schema))
            held = table.transaction_version(self._application)
            if held is None or held < number:
                self._commit(table, one, _evolve(table, columns), number)
                _tidy(table)

    def rows(self, schema: TableSchema) -> Iterator[pa.RecordBatch]:
        """Return the rows of a table."""
        dataset = DeltaTable(self.place(schema)).to_pyarrow_dataset()
        if self._mode is Mode.APPEND:
            return replayed((pa.table(batch) for batch in dataset.to_batches()), schema)
        wanted = [name for name in column_names(schema) if name in dataset.schema.names]
        still = pc.field("valid_to_offset").is_null() if self._mode is Mode.HISTORY else None
        batches: Iterator[pa.RecordBatch] = dataset.to_batches(columns=wanted, filter=still)
        return batches

    def _commit(self, table: DeltaTable, one: TableChanges, target: pa.Schema, number: int) -> None:
        """Commit the changes by their mode, and with them the batch and the highest offset."""
        seen = table.transaction_version(f"{self._application}:highest")
        noted = [(self._application, number), (f"{self._application}:highest", max(seen or 0, highest(one)))]
        commit = CommitProperties(app_transactions=[Transaction(name, version) for name, version in noted])
        match self._mode:
            case Mode.APPEND:
                write_deltalake(table, fitted(one.changes, target), mode="append", commit_properties=commit)
            case Mode.CURRENT:
                _apply_current(table, one, target, commit, late=is_late(one, seen))
            case Mode.HISTORY:
                _apply_history(table, one, target, commit, late=is_late(one, seen))
            case _:
                assert_never(self._mode)


def _apply_current(
    table: DeltaTable, one: TableChanges, target: pa.Schema, commit: CommitProperties, *, late: bool
) -> None:
    """Merge the last state of each key; where all keys are new, only append."""
    key = key_names(one.schema)
    last = fold_current(aligned(one.changes, target), key)
    inserts = pc.all(pc.equal(one.changes["_change_type"], str(ChangeType.INSERT))).as_py()
    if not table.file_uris() or one.fresh or (inserts and not late):
        rows = fitted(last.filter(pc.invert(last[DELETED])), target)
        write_deltalake(table, rows, mode="append", commit_properties=commit)
        return
    values = {_quoted(name): f"s.{_quoted(name)}" for name in last.column_names if name != DELETED}
    others = {name: value for name, value in values.items() if name not in set(map(_quoted, key))}
    newer = f"(t.{OFFSET} IS NULL OR s.{OFFSET} >= t.{OFFSET})"
    same = " AND ".join(f"t.{_quoted(name)} = s.{_quoted(name)}" for name in key)
    merge = table.merge(last, same, source_alias="s", target_alias="t", streamed_exec=False, commit_properties=commit)
    merge = merge.when_matched_delete(f"s.{DELETED} AND {newer}")
    merge = merge.when_matched_update(others, f"NOT s.{DELETED} AND {newer}")
    merge.when_not_matched_insert(values, f"NOT s.{DELETED}").execute()


def _apply_history(
    table: DeltaTable, one: TableChanges, target: pa.Schema, commit: CommitProperties, *, late: bool
) -> None:
    """Close the open versions of the keys that changed and add the new ones, in one merge."""
    key = key_names(one.schema)
    folded = fold_history(aligned(one.changes, target), key, _known(table, key) if late else None)
    if not table.file_uris() or one.fresh:
        write_deltalake(table, fitted(folded.versions, target), mode="append", commit_properties=commit)
        return
    parts = [(folded.closings, True), (folded.versions, False)]
    rows = pa.concat_tables(
        fitted(part, target).append_column(_CLOSING, pa.repeat(pa.scalar(closing), part.num_rows))
        for part, closing in parts
    )
    same = " AND ".join(f"t.{_quoted(name)} = s.{_quoted(name)}" for name in key)
    merge = table.merge(
        rows,
        f"{same} AND s.{_CLOSING} AND t.valid_to_offset IS NULL",
        source_alias="s",
        target_alias="t",
        streamed_exec=False,
        commit_properties=commit,
    )
    merge = merge.when_matched_update({"valid_to": "s.valid_to", "valid_to_offset": "s.valid_to_offset"})
    values = {_quoted(name): f"s.{_quoted(name)}" for name in target.names}
    merge.when_not_matched_insert(values, f"NOT s.{_CLOSING}").execute()


def _known(table: DeltaTable, key: Sequence[str]) -> pa.Table:
    """Return the last offset that a history has of each key."""
    wanted = [*key, "valid_from_offset", "valid_to_offset"]
    return last_known(table.to_pyarrow_dataset().to_table(columns=wanted), key)


def _evolve(table: DeltaTable, columns: pa.Schema) -> pa.Schema:
    """Give a table the columns that it lacks, and the types that hold both, in a commit of its own."""
    present = pa.schema(table.schema().to_arrow())
    target = united(present, columns)
    if any(target.field(field.name).type != field.type for field in present):
        rows = fitted(table.to_pyarrow_dataset().to_table(), target)
        write_deltalake(table, rows, mode="overwrite", schema_mode="overwrite")
    elif len(target) > len(present):
        added = DeltaSchema.from_arrow(pa.schema(list(target)[len(present) :]))
        table.alter.add_columns(added.fields)
    return target


def _tidy(table: DeltaTable) -> None:
    """Put small files together where there are many, in a commit of its own that changes no row."""
    if len(table.file_uris()) > FILES_MAX:
        table.optimize.compact()


def _file_name(name: str) -> str:
    """Return a name as one directory; delta-rs takes a percent sign for the beginning of an escape."""
    return name.replace("%", "_25").replace("/", "_2F")


def _quoted(name: str) -> str:
    """Return the name of a column as an expression."""
    return '"' + name.replace('"', '""') + '"'


@contextmanager
def _delta_errors(schema: TableSchema) -> Iterator[None]:
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
