"""Iceberg tables, written by the driver through pyiceberg."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import assert_never

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    And,
    BooleanExpression,
    GreaterThanOrEqual,
    IsNull,
    LessThanOrEqual,
    Reference,
)
from pyiceberg.table import Table

from tailrace.model.table import TableSchema
from tailrace.pipeline.evolve import aligned, fitted
from tailrace.pipeline.fold import DELETED, OFFSET, fold_current, fold_history, last_known, whole_changes
from tailrace.pipeline.sink.base import Mode, TableChanges, TableMark
from tailrace.pipeline.sink.iceberg_table import FILE_BYTES, evolve, iceberg_errors, plain, read, write
from tailrace.pipeline.sink.progress import has_batch, highest
from tailrace.pipeline.sink.replay import column_names, replayed
from tailrace.pipeline.sink.row import key_names
from tailrace.pipeline.sink.shape import columns_of, is_late
from tailrace.pipeline.sink.upkeep import TableUpkeep, UpkeepOptions
from tailrace.pipeline.truncation import spelled_out
from tailrace.sink_url import Spelling

__all__ = ["CATALOG", "IcebergTables", "Warehouse"]

CATALOG = "tailrace"
"""Name of the catalog in `catalog.db`."""

_PROPERTIES = {
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "100",
    "write.target-file-size-bytes": str(FILE_BYTES),
}


class Warehouse(Struct, frozen=True):
    """Where Iceberg tables and their catalog are."""

    location: str
    """A directory of this machine, or a URL of object storage."""

    catalog: str
    """An SQLAlchemy URL."""

    settings: dict[str, str] = {}
    """How object storage is reached, as pyiceberg takes it."""

    @property
    def is_local(self) -> bool:
        """Tell whether the tables are on this machine."""
        return self.location.startswith("/")

    @property
    def url(self) -> str:
        """Return the location as a URL."""
        return f"file://{self.location}" if self.is_local else self.location


class IcebergTables:
    """Iceberg tables in a warehouse, with a catalog in a database: its file `catalog.db`, or another one that is named.

    What a batch changes is copied on write: the files that hold a row of it are replaced, in one snapshot together with
    the new rows. The batch's number is a property of that snapshot, and of the table, where no expiry removes it.
    """

    def __init__(self, warehouse: Warehouse, names: tuple[str, str], mode: Mode, pipeline: str) -> None:
        self._warehouse = warehouse
        self._namespace, self._named = names[0], Spelling(names[1])
        self._mode = mode
        self._pipeline = pipeline
        self._opened: SqlCatalog | None = None

    @property
    def spread(self) -> None:
        """Return that tasks cannot write Iceberg tables."""

    @property
    def lay_out(self) -> None:
        """Return that it cannot be chosen how tables are made."""

    def maintain(self, schema: TableSchema, options: UpkeepOptions) -> TableUpkeep:
        """Expire snapshots of a table that are older than the retention; the newest stays."""
        with iceberg_errors(schema):
            table = self._catalog.load_table((self._namespace, self.place(schema)))
            before = len(table.snapshots())
            oldest = datetime.now(UTC) - timedelta(seconds=options.retention_s)
            table.maintenance.expire_snapshots().older_than(oldest).commit()
            files = len(table.inspect.files())
            return TableUpkeep(schema.table.wire, files, files, before - len(table.snapshots()))

    def place(self, schema: TableSchema) -> str:
        """Return the name of a table."""
        return self._named(schema.table)

    def directory(self, schema: TableSchema) -> Path | None:
        """Return the directory of a table."""
        return Path(self._warehouse.location) / self._folder(schema) if self._warehouse.is_local else None

    def exists(self, schema: TableSchema) -> bool:
        """Tell whether a table is there."""
        with iceberg_errors(schema):
            return self._catalog.table_exists((self._namespace, self.place(schema)))

    def apply(self, one: TableChanges, given: TableMark, known: TableMark | None = None) -> None:
        """Commit the changes of one table, unless it has this batch."""
        one = spelled_out(one, self._mode, lambda: self.rows(one.schema) if self.exists(one.schema) else ())
        with iceberg_errors(one.schema):
            columns = columns_of(one, self._mode)
            table = self._table(one.schema, columns)
            if not has_batch(self._mark(table), given, known):
                evolve(table, columns)
                self._commit(table, one, given)

    def mark(self, schema: TableSchema) -> TableMark | None:
        """Return the last batch that a table has."""
        with iceberg_errors(schema):
            return self._mark(self._catalog.load_table((self._namespace, self.place(schema))))

    def rows(self, schema: TableSchema) -> Iterator[pa.RecordBatch]:
        """Return the rows of a table."""
        with iceberg_errors(schema):
            table = self._catalog.load_table((self._namespace, self.place(schema)))
            columns = plain(table.schema().as_arrow())
            if self._mode is Mode.APPEND:
                found = table.scan().to_arrow_batch_reader()
                return replayed((fitted(pa.table(batch), columns) for batch in found), schema)
            wanted = pa.schema([columns.field(name) for name in column_names(schema) if name in columns.names])
            still: BooleanExpression = _open_versions() if self._mode is Mode.HISTORY else AlwaysTrue()
            found = table.scan(row_filter=still, selected_fields=tuple(wanted.names)).to_arrow_batch_reader()
            return (part for batch in found for part in fitted(pa.table(batch), wanted).to_batches())

    @property
    def _catalog(self) -> SqlCatalog:
        if self._opened is None:
            place = self._warehouse
            self._opened = SqlCatalog(CATALOG, uri=place.catalog, warehouse=place.url, **place.settings)
            self._opened.create_namespace_if_not_exists((self._namespace,))
        return self._opened

    def _folder(self, schema: TableSchema) -> str:
        """Return where below the warehouse a table is."""
        name = self.place(schema)
        return f"{self._namespace}/" + "".join(one if one.isalnum() else f"_{ord(one):x}_" for one in name)

    def _mark(self, table: Table) -> TableMark | None:
        number, through = (table.properties.get(self._property(name)) for name in ("batch", "through"))
        return None if number is None else TableMark(int(number), None if through is None else int(through))

    def _property(self, name: str) -> str:
        return f"tailrace.{self._pipeline}.{name}"

    def _table(self, schema: TableSchema, columns: pa.Schema) -> Table:
        """Return a table, made where it is missing."""
        name = (self._namespace, self.place(schema))
        try:
            return self._catalog.load_table(name)
        except NoSuchTableError:
            location = f"{self._warehouse.url}/{self._folder(schema)}"
            return self._catalog.create_table(name, columns, location=location, properties=_PROPERTIES)

    def _commit(self, table: Table, one: TableChanges, given: TableMark) -> None:
        """Commit the changes by their mode, and with them the batch and the highest offset."""
        target = table.schema().as_arrow()
        seen = int(table.properties.get(self._property("highest"), 0))
        noted = {self._property("batch"): str(given.number), self._property("highest"): str(max(seen, highest(one)))}
        if given.through is not None:
            noted[self._property("through")] = str(given.through)
        key, late = key_names(one.schema), not one.fresh and is_late(one, seen)
        changes = aligned(one.changes, plain(target))
        if self._mode is not Mode.APPEND:
            changes = whole_changes(changes, key, lambda keys, names: self._held(table, keys, names))
        match self._mode:
            case Mode.APPEND:
                write(table, changes, noted, AlwaysFalse(), lambda rows: rows)
            case Mode.CURRENT:
                last = fold_current(changes, key)
                last = _newer(table, last, key) if late else last
                gone = last.select([*key, OFFSET])
                new = last.filter(pc.invert(last[DELETED])).drop_columns([DELETED])
                near = AlwaysFalse() if one.fresh else _around(last, key)
                write(table, new, noted, near, lambda rows: _without(rows, gone, key))
            case Mode.HISTORY:
                known = _known(table, changes, key) if late else None
                folded = fold_history(changes, key, known)
                near = AlwaysFalse() if one.fresh else And(_open_versions(), _around(folded.closings, key))
                write(table, folded.versions, noted, near, lambda rows: _closed(rows, folded.closings, key))
            case _:
                assert_never(self._mode)

    def _held(self, table: Table, keys: pa.Table, names: Sequence[str]) -> pa.Table:
        """Return columns of the rows that a table has near some keys, of a history those of the open versions."""
        near = _around(keys, keys.column_names)
        near = And(_open_versions(), near) if self._mode is Mode.HISTORY else near
        return read(table, [*keys.column_names, *names], near)


def _around(rows: pa.Table, key: Sequence[str]) -> BooleanExpression:
    """Return what holds in all files that may have these keys: the first column is between the least and the last."""
    column = rows[key[0]]
    if not rows.num_rows or not (pa.types.is_int64(column.type) or pa.types.is_string(column.type)) or "." in key[0]:
        return AlwaysTrue()
    least, last = (pc.min_max(column)[end].as_py() for end in ("min", "max"))
    term = Reference(key[0])
    return And(GreaterThanOrEqual(term=term, value=least), LessThanOrEqual(term=term, value=last))


def _open_versions() -> BooleanExpression:
    return IsNull(term=Reference("valid_to_offset"))


def _matches(rows: pa.Table, others: pa.Table, key: Sequence[str]) -> pa.Table:
    """Return `_place`s of the rows whose key is among others, with the other columns of those, in order of places."""
    placed = rows.select(list(key)).append_column("_place", pa.array(np.arange(rows.num_rows)))
    return placed.join(others, list(key), join_type="inner").sort_by("_place")


def _without(rows: pa.Table, gone: pa.Table, key: Sequence[str]) -> pa.Table:
    """Return the rows whose key is not among others; the very same table where that is all of them."""
    places = _matches(rows, gone.select(list(key)), key)["_place"].to_numpy()
    if not len(places):
        return rows
    mask = np.ones(rows.num_rows, dtype=bool)
    mask[places] = False
    return rows.filter(pa.array(mask))


def _closed(rows: pa.Table, closings: pa.Table, key: Sequence[str]) -> pa.Table:
    """Return the rows with an end to the open versions of these keys; the very same table where none is open."""
    matches = _matches(rows, closings, key)
    still = pc.is_null(rows["valid_to_offset"].take(matches["_place"]))
    matches = matches.filter(still)
    if not matches.num_rows:
        return rows
    mask = np.zeros(rows.num_rows, dtype=bool)
    mask[matches["_place"].to_numpy()] = True
    for name in ("valid_to", "valid_to_offset"):
        place = rows.schema.get_field_index(name)
        column = rows[name].combine_chunks()
        ended = pc.replace_with_mask(column, pa.array(mask), matches[name].combine_chunks().cast(column.type))
        rows = rows.set_column(place, rows.schema.field(place), ended)
    return rows


def _newer(table: Table, last: pa.Table, key: Sequence[str]) -> pa.Table:
    """Return the states that are newer than those that the table has."""
    matches = _matches(last, read(table, [*key, OFFSET], _around(last, key)), key)
    stale = pc.greater(matches[OFFSET], last[OFFSET].take(matches["_place"]))
    places = matches.filter(pc.fill_null(stale, fill_value=False))["_place"].to_numpy()
    mask = np.ones(last.num_rows, dtype=bool)
    mask[places] = False
    return last.filter(pa.array(mask))


def _known(table: Table, changes: pa.Table, key: Sequence[str]) -> pa.Table:
    """Return the last offset that a history has of each key that changed, and of others near them."""
    return last_known(read(table, [*key, "valid_from_offset", "valid_to_offset"], _around(changes, key)), key)
