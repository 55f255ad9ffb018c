"""Delta Lake tables, written by the driver through delta-rs, or by tasks."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self, assert_never
from urllib.parse import unquote

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, write_deltalake
from deltalake.table import TableMerger
from msgspec import structs

from tailrace.model.table import TableSchema
from tailrace.pipeline.duck import connection
from tailrace.pipeline.evolve import aligned, fitted
from tailrace.pipeline.fold import DELETED, OFFSET, fold_current, fold_history, last_known, whole_changes
from tailrace.pipeline.sink.base import ChangeType, Mode, TableChanges, TableMark
from tailrace.pipeline.sink.delta_lake import DeltaLake
from tailrace.pipeline.sink.delta_spread import TableDraft, drafted
from tailrace.pipeline.sink.delta_table import (
    FirstKey,
    Notes,
    delta_errors,
    evolve,
    files_near,
    is_ordered,
    is_plain,
    opened,
)
from tailrace.pipeline.sink.delta_upkeep import maintain_table
from tailrace.pipeline.sink.progress import has_batch, highest
from tailrace.pipeline.sink.replay import column_names, replayed
from tailrace.pipeline.sink.row import key_names
from tailrace.pipeline.sink.shape import columns_of, is_late
from tailrace.pipeline.sink.spread import SpreadBatch, Tally
from tailrace.pipeline.sink.upkeep import TableLayout, TableUpkeep, UpkeepOptions
from tailrace.pipeline.truncation import spelled_out

__all__ = ["FILES_MAX", "DeltaTables"]

FILES_MAX = 100
"""How many small files a table may have before they are put together."""

_SMALL_BYTES = 32 << 20

_BATCHES_AHEAD = 2
"""How many batches of rows are read ahead of who takes them."""

_CLOSING = "_closing"
"""Column of a merge into a history: tells rows that end a version from rows that are one."""


class DeltaTables:
    """Delta tables, one for each table of the pipeline.

    The batch's number is a transaction of the application `tailrace:PIPELINE` in the table's log.
    """

    def __init__(self, lake: DeltaLake, mode: Mode, pipeline: str) -> None:
        self._lake = lake
        self._mode = mode
        self._notes = Notes(pipeline)

    @property
    def spread(self) -> Self:
        """Return itself: tasks can write Delta tables."""
        return self

    def lay_out(self, layout: TableLayout) -> None:
        """Take how tables are to be made."""
        self._lake = structs.replace(self._lake, layout=layout)

    def maintain(self, schema: TableSchema, options: UpkeepOptions) -> TableUpkeep:
        """Maintain a table."""
        return maintain_table(self._lake, schema, options)

    def place(self, schema: TableSchema) -> str:
        """Return the directory or URL of a table."""
        return self._lake.uri(schema)

    def directory(self, schema: TableSchema) -> Path | None:
        """Return the directory of a table."""
        return self._lake.directory(schema)

    def exists(self, schema: TableSchema) -> bool:
        """Tell whether a table is there."""
        return self._lake.exists(schema)

    def apply(self, one: TableChanges, given: TableMark, known: TableMark | None = None) -> None:
        """Commit the changes of one table, unless it has this batch."""
        one = spelled_out(one, self._mode, lambda: self.rows(one.schema) if self.exists(one.schema) else ())
        with delta_errors(one.schema):
            columns = columns_of(one, self._mode)
            table = opened(self._lake, one.schema, columns)
            if not has_batch(self._notes.mark(table), given, known):
                self._commit(table, one, evolve(table, self._lake.files(one.schema), columns), given)
                _tidy(table)

    def mark(self, schema: TableSchema) -> TableMark | None:
        """Return the last batch that a table has."""
        with delta_errors(schema):
            return self._notes.mark(self._lake.table(schema))

    def takes(self, schema: TableSchema) -> bool:
        """Tell whether tasks can write a table: not the history of one, and none that asks more than files."""
        if self._mode is Mode.HISTORY:
            return False
        with delta_errors(schema):
            if not self.exists(schema):
                return self._lake.layout.is_plain(schema.table.wire)
            return is_plain(self._lake.table(schema))

    @contextmanager
    def drafted(self, batch: SpreadBatch) -> Iterator[tuple[list[TableDraft], Tally]]:
        """Have tasks write the changes of a batch; see `SpreadTables.drafted`."""
        with drafted(self._lake, self._mode, batch) as found:
            yield found

    def commit(self, draft: TableDraft, given: TableMark, known: TableMark | None) -> None:
        """Commit what tasks have written of one table, unless it has that batch."""
        table = draft.commit(given, known, self._notes)
        if table is not None:
            with delta_errors(draft.schema):
                _tidy(table)

    def rows(self, schema: TableSchema) -> Iterator[pa.RecordBatch]:
        """Return the rows of a table."""
        with delta_errors(schema):
            dataset = self._lake.table(schema).to_pyarrow_dataset()
        if self._mode is Mode.APPEND:
            return replayed((pa.table(batch) for batch in dataset.to_batches()), schema)
        wanted = [name for name in column_names(schema) if name in dataset.schema.names]
        still = pc.field("valid_to_offset").is_null() if self._mode is Mode.HISTORY else None
        batches: Iterator[pa.RecordBatch] = dataset.to_batches(
            columns=wanted, filter=still, batch_readahead=_BATCHES_AHEAD, fragment_readahead=1
        )
        return batches

    def _commit(self, table: DeltaTable, one: TableChanges, target: pa.Schema, given: TableMark) -> None:
        """Commit the changes by their mode, and with them the batch and the highest offset."""
        seen = self._notes.highest(table)
        commit = self._notes.commit(table, given, highest(one))
        match self._mode:
            case Mode.APPEND:
                write_deltalake(table, fitted(one.changes, target), mode="append", commit_properties=commit)
            case Mode.CURRENT:
                _apply_current(table, self.directory(one.schema), one, target, commit, late=is_late(one, seen))
            case Mode.HISTORY:
                _apply_history(table, one, target, commit, late=is_late(one, seen))
            case _:
                assert_never(self._mode)


def _apply_current(
    table: DeltaTable,
    directory: Path | None,
    one: TableChanges,
    target: pa.Schema,
    commit: CommitProperties,
    *,
    late: bool,
) -> None:
    """Merge the last state of each key; where all keys are new, only append."""
    key = key_names(one.schema)
    changes = aligned(one.changes, target)
    last = fold_current(whole_changes(changes, key, lambda keys, names: _held(table, keys, names)), key)
    inserts = pc.all(pc.equal(one.changes["_change_type"], str(ChangeType.INSERT))).as_py()
    if not table.file_uris() or one.fresh or (inserts and not late and not _has_any(table, directory, last, key)):
        rows = fitted(last.filter(pc.invert(last[DELETED])), target)
        write_deltalake(table, rows, mode="append", commit_properties=commit)
        return
    values = {_quoted(name): f"s.{_quoted(name)}" for name in last.column_names if name != DELETED}
    others = {name: value for name, value in values.items() if name not in set(map(_quoted, key))}
    newer = f"(t.{OFFSET} IS NULL OR s.{OFFSET} >= t.{OFFSET})"
    same = " AND ".join(f"t.{_quoted(name)} = s.{_quoted(name)}" for name in key)
    merge = _merge(table, last, same, key, commit)
    merge = merge.when_matched_delete(f"s.{DELETED} AND {newer}")
    merge = merge.when_matched_update(others, f"NOT s.{DELETED} AND {newer}")
    merge.when_not_matched_insert(values, f"NOT s.{DELETED}").execute()


def _has_any(table: DeltaTable, directory: Path | None, rows: pa.Table, key: Sequence[str]) -> bool:
    """Tell whether a table has a row of one of these keys: a source that recreates a table inserts its rows again.

    So does one that deletes a row and inserts its key again, of which the layout `latest` tells the insert alone.
    Only the columns of the key are read, of files that may hold one by their statistics. Of a table that asks more of
    its readers than files nothing is known.
    """
    if not is_plain(table):
        return True
    first = FirstKey(rows.schema.field(key[0]))
    if is_ordered(first.field.type):
        ends = pc.min_max(rows[key[0]]).as_py()
        first = FirstKey(first.field, ends["min"], ends["max"])
    if directory is None:
        return _has_any_remote(table, first, rows.select(list(key)))
    paths = [str(directory / unquote(path)).replace("'", "''") for path, _ in files_near(table, first)]
    if not paths:
        return False
    files = ", ".join(f"'{path}'" for path in paths)
    held = f"read_parquet([{files}], hive_partitioning = false)"
    query = f"SELECT 1 FROM given SEMI JOIN {held} USING ({', '.join(map(_quoted, key))}) LIMIT 1"  # noqa: S608
    try:
        return bool(connection().from_arrow(rows.select(list(key))).query("given", query).fetchall())
    except duckdb.Error:  # e.g. a file of before the table had such a column
        return True


def _has_any_remote(table: DeltaTable, first: FirstKey, keys: pa.Table) -> bool:
    """Tell whether a table in object storage has one of some keys; see `_has_any`. DuckDB cannot read there."""
    near = {unquote(path) for path, _ in files_near(table, first)}
    dataset = table.to_pyarrow_dataset()
    names = keys.column_names
    return any(
        fitted(file.to_table(schema=dataset.schema, columns=names), keys.schema)
        .join(keys, names, join_type="left semi")
        .num_rows
        for file in dataset.get_fragments()
        if unquote(file.path) in near
    )


def _apply_history(
    table: DeltaTable, one: TableChanges, target: pa.Schema, commit: CommitProperties, *, late: bool
) -> None:
    """Close the open versions of the keys that changed and add the new ones, in one merge."""
    key = key_names(one.schema)
    still = pc.field("valid_to_offset").is_null()
    changes = aligned(one.changes, target)
    changes = whole_changes(changes, key, lambda keys, names: _held(table, keys, names, still))
    folded = fold_history(changes, key, _known(table, key) if late else None)
    if not table.file_uris() or one.fresh:
        write_deltalake(table, fitted(folded.versions, target), mode="append", commit_properties=commit)
        return
    parts = [(folded.closings, True), (folded.versions, False)]
    rows = pa.concat_tables(
        fitted(part, target).append_column(_CLOSING, pa.repeat(pa.scalar(closing), part.num_rows))
        for part, closing in parts
    )
    same = " AND ".join(f"t.{_quoted(name)} = s.{_quoted(name)}" for name in key)
    merge = _merge(table, rows, f"{same} AND s.{_CLOSING} AND t.valid_to_offset IS NULL", key, commit)
    merge = merge.when_matched_update({"valid_to": "s.valid_to", "valid_to_offset": "s.valid_to_offset"})
    values = {_quoted(name): f"s.{_quoted(name)}" for name in target.names}
    merge.when_not_matched_insert(values, f"NOT s.{_CLOSING}").execute()


def _merge(
    table: DeltaTable, rows: pa.Table, matching: str, key: Sequence[str], commit: CommitProperties
) -> TableMerger:
    """Return the merge of rows into a table. Files are left out by their statistics where those of the key are exact.

    A stream has no statistics that could be compared with those of files.
    """
    exact = all(is_ordered(rows.schema.field(name).type) for name in key)
    return table.merge(
        rows, matching, source_alias="s", target_alias="t", streamed_exec=not exact, commit_properties=commit
    )


def _known(table: DeltaTable, key: Sequence[str]) -> pa.Table:
    """Return the last offset that a history has of each key."""
    wanted = [*key, "valid_from_offset", "valid_to_offset"]
    return last_known(table.to_pyarrow_dataset().to_table(columns=wanted), key)


def _held(table: DeltaTable, keys: pa.Table, names: Sequence[str], still: Any = None) -> pa.Table:
    """Return columns of the rows that a table has near some keys."""
    first = keys.column_names[0]
    near = pc.field(first).isin(keys[first].combine_chunks())
    columns = [*keys.column_names, *names]
    return table.to_pyarrow_dataset().to_table(columns=columns, filter=near if still is None else near & still)


def _tidy(table: DeltaTable) -> None:
    """Put small files together where there are many, in a commit of its own that changes no row."""
    sizes = pa.table(table.get_add_actions())["size_bytes"]
    if (pc.sum(pc.less(sizes, _SMALL_BYTES)).as_py() or 0) > FILES_MAX:
        table.optimize.compact()


def _quoted(name: str) -> str:
    """Return the name of a column as an expression."""
    return '"' + name.replace('"', '""') + '"'
