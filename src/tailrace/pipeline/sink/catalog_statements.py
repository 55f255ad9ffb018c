"""The statements by which a catalog sink works: Spark SQL over a view of changes. Pure.

The view has the columns of `TableChanges`. Folding is part of the statements, so it happens where Spark runs, and
each mode is one statement: what a table takes of a batch, it takes wholly or not at all.
"""

# ruff: noqa: S608 - names are quoted, values are in views or are numbers

from collections.abc import Iterable, Sequence

import pyarrow as pa
from msgspec import Struct

from tailrace.pipeline.fold import CHANGE_COLUMNS, OFFSET, VALIDITY
from tailrace.pipeline.sink.base import ChangeType

__all__ = [
    "BATCHES_COLUMNS",
    "CatalogTarget",
    "add_columns",
    "append",
    "beyond",
    "create",
    "forget_batches",
    "held",
    "insert_current",
    "insert_history",
    "last_batch",
    "merge_current",
    "merge_history",
    "named",
    "note_batch",
    "retyped",
    "select",
    "sql_type",
]

_PLACE = "_tailrace_place"
_DELETED = "_tailrace_deleted"
_CLOSING = "_tailrace_closing"
_KNOWN = "_tailrace_known"
"""Columns that exist inside statements alone."""

_TYPES = {
    pa.bool_(): "BOOLEAN",
    pa.int64(): "BIGINT",
    pa.float64(): "DOUBLE",
    pa.string(): "STRING",
    pa.binary(): "BINARY",
    pa.date32(): "DATE",
    pa.timestamp("us"): "TIMESTAMP_NTZ",
    pa.timestamp("us", tz="UTC"): "TIMESTAMP",
}

BATCHES_COLUMNS = pa.schema(
    [
        ("pipeline", pa.string()),
        ("number", pa.int64()),
        ("offsets", pa.string()),
        ("highest", pa.string()),
        ("changes", pa.int64()),
        ("applied_at", pa.timestamp("us", tz="UTC")),
    ]
)
"""Columns of the table of batches."""


class CatalogTarget(Struct, frozen=True):
    """A table of the catalog, and the view of changes that go into it."""

    name: tuple[str, ...]
    """Catalog, namespaces, table."""

    columns: tuple[str, ...]
    """All columns of the table."""

    key: tuple[str, ...]
    view: str
    view_columns: tuple[str, ...]
    """Columns of the view."""

    @property
    def table(self) -> str:
        """Return the table's name as SQL has it."""
        return named(self.name)


def merge_current(target: CatalogTarget) -> str:
    """Return the statement that brings a table up to date: the last change of each key counts, unless it is late.

    A row that is newer than the change stays, so the same changes may be given again.
    """
    row = [name for name in target.view_columns if name not in CHANGE_COLUMNS]
    newer = f"(t.{_quoted(OFFSET)} IS NULL OR s.{_quoted(OFFSET)} >= t.{_quoted(OFFSET)})"
    others = [name for name in (*row, OFFSET) if name not in target.key]
    values = ", ".join(f"t.{_quoted(name)} = s.{_quoted(name)}" for name in others)
    return (
        f"MERGE INTO {target.table} AS t\n"
        f"USING (\n{_current(target)}\n) AS s\n"
        f"ON {_same(target.key)}\n"
        f"WHEN MATCHED AND s.{_DELETED} AND {newer} THEN DELETE\n"
        f"WHEN MATCHED AND NOT s.{_DELETED} AND {newer} THEN UPDATE SET {values}\n"
        f"WHEN NOT MATCHED AND NOT s.{_DELETED} THEN INSERT {_inserted(target, (*row, OFFSET))}"
    )


def insert_current(target: CatalogTarget) -> str:
    """Return the statement for keys that the table certainly does not have."""
    row = [name for name in target.view_columns if name not in CHANGE_COLUMNS]
    selected = _selected(target, (*row, OFFSET))
    return f"INSERT INTO {target.table}\nSELECT {selected} FROM (\n{_current(target)}\n) AS s\nWHERE NOT s.{_DELETED}"


def append(target: CatalogTarget, between: tuple[int, int] | None) -> str:
    """Return the statement that adds changes as they are.

    `between` are the lowest and the highest offset of changes of which the table may have some: those it has are left
    out.
    """
    statement = (
        f"INSERT INTO {target.table}\nSELECT {_selected(target, target.view_columns)} FROM {_quoted(target.view)} AS s"
    )
    if between is None:
        return statement
    lowest, highest = between
    identity = [OFFSET, "_change_type", *target.key]
    same = " AND ".join(f"t.{_quoted(name)} <=> s.{_quoted(name)}" for name in identity)
    return (
        f"{statement}\nLEFT ANTI JOIN (SELECT {_listed(identity)} FROM {target.table}"
        f" WHERE {_quoted(OFFSET)} BETWEEN {lowest:d} AND {highest:d}) AS t\nON {same}"
    )


def merge_history(target: CatalogTarget, *, late: bool) -> str:
    """Return the statement that ends the open versions of keys that changed and adds the new versions.

    With `late`, changes up to the last one that the table has of their key are left out.
    """
    row = [name for name in target.view_columns if name not in CHANGE_COLUMNS]
    begin, end, begin_offset, end_offset = VALIDITY.names
    return (
        f"MERGE INTO {target.table} AS t\n"
        f"USING (\n{_history(target, row, late=late)}\n) AS s\n"
        f"ON {_same(target.key)} AND s.{_CLOSING} AND t.{end_offset} IS NULL\n"
        f"WHEN MATCHED THEN UPDATE SET t.{end} = s.{begin}, t.{end_offset} = s.{begin_offset}\n"
        f"WHEN NOT MATCHED AND NOT s.{_CLOSING} THEN INSERT {_inserted(target, (*row, *VALIDITY.names))}"
    )


def insert_history(target: CatalogTarget) -> str:
    """Return the statement for keys that the table certainly does not have."""
    row = [name for name in target.view_columns if name not in CHANGE_COLUMNS]
    selected = _selected(target, (*row, *VALIDITY.names))
    source = _history(target, row, late=False)
    return f"INSERT INTO {target.table}\nSELECT {selected} FROM (\n{source}\n) AS s\nWHERE NOT s.{_CLOSING}"


def create(name: Sequence[str], columns: pa.Schema, using: str) -> str:
    """Return the statement that makes a table where there is none; `using` is its format, empty for the usual one."""
    format_ = f" USING {_quoted(using)}" if using else ""
    return f"CREATE TABLE IF NOT EXISTS {named(name)} ({_declared(columns)}){format_}"


def add_columns(name: Sequence[str], columns: Iterable[pa.Field]) -> str:
    """Return the statement that adds columns."""
    return f"ALTER TABLE {named(name)} ADD COLUMNS ({_declared(columns)})"


def retyped(name: Sequence[str], present: pa.Schema, target: pa.Schema, using: str) -> str:
    """Return the statement that writes a table again with wider types, in place of itself."""
    format_ = f" USING {_quoted(using)}" if using else ""
    cells = [_cast(field, target.field(field.name).type) for field in present]
    return f"CREATE OR REPLACE TABLE {named(name)}{format_}\nAS SELECT {', '.join(cells)} FROM {named(name)}"


def select(name: Sequence[str], columns: Sequence[str], *, open_versions: bool = False) -> str:
    """Return the statement that reads a table."""
    where = " WHERE valid_to_offset IS NULL" if open_versions else ""
    return f"SELECT {_listed(columns)} FROM {named(name)}{where}"


def beyond(name: Sequence[str], through: int) -> str:
    """Return the statement that finds a change behind an offset, if a table has one."""
    word = _text(str(ChangeType.READ))
    return f"SELECT 1 FROM {named(name)} WHERE {OFFSET} > {through} AND _change_type <> {word} LIMIT 1"


def held(target: CatalogTarget, *, open_versions: bool) -> str:
    """Return the statement that reads the columns of a target of the rows whose keys are in the view."""
    where = " WHERE t.valid_to_offset IS NULL" if open_versions else ""
    listed = ", ".join(f"t.{_quoted(name)}" for name in target.columns)
    return f"SELECT {listed} FROM {target.table} AS t JOIN {_quoted(target.view)} AS s ON {_same(target.key)}{where}"


def last_batch(name: Sequence[str], pipeline: str) -> str:
    """Return the statement that reads the last batch of a pipeline."""
    return (
        f"SELECT number, offsets, highest FROM {named(name)} WHERE pipeline = {_text(pipeline)}"
        " ORDER BY number DESC, applied_at DESC LIMIT 1"
    )


def note_batch(name: Sequence[str], view: str) -> str:
    """Return the statement that notes a batch, which a view has as its only row."""
    return f"INSERT INTO {named(name)} SELECT {_listed(BATCHES_COLUMNS.names)} FROM {_quoted(view)}"


def forget_batches(name: Sequence[str], pipeline: str, through: int) -> str:
    """Return the statement that removes old batches of a pipeline."""
    return f"DELETE FROM {named(name)} WHERE pipeline = {_text(pipeline)} AND number <= {through:d}"


def sql_type(type_: pa.DataType) -> str:
    """Return Spark's name of a type that changes have."""
    if pa.types.is_list(type_):
        return f"ARRAY<{sql_type(type_.value_type)}>"
    return f"DECIMAL({type_.precision},{type_.scale})" if pa.types.is_decimal128(type_) else _TYPES[type_]


def named(name: Sequence[str]) -> str:
    """Return the name of a table as SQL has it."""
    return ".".join(map(_quoted, name))


def _current(target: CatalogTarget) -> str:
    """Return the query for the last state of each key."""
    row = [name for name in target.view_columns if name not in CHANGE_COLUMNS]
    deleted = f"{_quoted('_change_type')} IN ('{ChangeType.DELETE}', '{ChangeType.UPDATE_PREIMAGE}') AS {_DELETED}"
    return f"  SELECT {_listed([*row, OFFSET])}, {deleted} FROM ({_last(target, target.key)}) WHERE {_PLACE} = 1"


def _last(target: CatalogTarget, by: Sequence[str]) -> str:
    """Return the query that numbers changes backwards; of the rows of an update the row before it comes first."""
    order = f"{_quoted(OFFSET)} DESC, {_quoted('_change_type')} = '{ChangeType.UPDATE_PREIMAGE}'"
    place = f"row_number() OVER (PARTITION BY {_listed(by)} ORDER BY {order}) AS {_PLACE}"
    return f"SELECT {_listed(target.view_columns)}, {place} FROM {_quoted(target.view)}"


def _history(target: CatalogTarget, row: Sequence[str], *, late: bool) -> str:
    """Return the query for the versions that changes make, and for the first change of each key, which ends one."""
    by = [*target.key, "_commit_version"]
    begin, end, begin_offset, end_offset = VALIDITY.names
    events = f"SELECT {_listed(target.view_columns)} FROM ({_last(target, by)}) WHERE {_PLACE} = 1"
    source = "events"
    known = ""
    if late:
        latest = f"max(greatest({begin_offset}, {end_offset})) AS {_KNOWN}"
        keys = _listed(target.key)
        cells = ", ".join(f"s.{_quoted(name)}" for name in target.view_columns)
        known = (
            f",\n  fresh AS (SELECT {cells} FROM events AS s"
            f" LEFT JOIN (SELECT {keys}, {latest} FROM {target.table} GROUP BY {keys}) AS t ON {_same(target.key)}"
            f" WHERE t.{_KNOWN} IS NULL OR s.{_quoted(OFFSET)} > t.{_KNOWN})"
        )
        source = "fresh"
    window = f"(PARTITION BY {_listed(target.key)} ORDER BY {_quoted(OFFSET)})"
    versions = (
        f"SELECT {_listed(row)}, `_change_type`, `_commit_timestamp` AS {begin},"
        f" lead(`_commit_timestamp`) OVER {window} AS {end},"
        f" {_quoted(OFFSET)} AS {begin_offset}, lead({_quoted(OFFSET)}) OVER {window} AS {end_offset},"
        f" row_number() OVER {window} AS {_PLACE} FROM {source}"
    )
    listed = _listed([*row, *VALIDITY.names])
    live = f"`_change_type` NOT IN ('{ChangeType.DELETE}', '{ChangeType.UPDATE_PREIMAGE}')"
    return (
        f"  WITH events AS ({events}){known},\n"
        f"  versions AS ({versions})\n"
        f"  SELECT {listed}, false AS {_CLOSING} FROM versions WHERE {live}\n"
        f"  UNION ALL\n"
        f"  SELECT {listed}, true AS {_CLOSING} FROM versions WHERE {_PLACE} = 1"
    )


def _inserted(target: CatalogTarget, columns: Sequence[str]) -> str:
    """Return the columns and values of an insertion: all of the table, null where nothing is given."""
    values = ", ".join(f"s.{_quoted(name)}" if name in columns else "NULL" for name in target.columns)
    return f"({_listed(target.columns)}) VALUES ({values})"


def _selected(target: CatalogTarget, columns: Sequence[str]) -> str:
    """Return what is selected for an insertion, in the order of the table's columns."""
    return ", ".join(f"s.{_quoted(name)}" if name in columns else "NULL" for name in target.columns)


def _same(key: Sequence[str]) -> str:
    return " AND ".join(f"t.{_quoted(name)} = s.{_quoted(name)}" for name in key)


def _cast(field: pa.Field, type_: pa.DataType) -> str:
    """Return a column in a type that is at least as wide; what becomes bytes becomes text before."""
    name = _quoted(field.name)
    if field.type == type_ or pa.types.is_null(field.type):
        return name
    if pa.types.is_list(field.type) and not pa.types.is_list(type_):
        return f"CAST(to_json({name}) AS {sql_type(type_)}) AS {name}"
    inner = f"CAST({name} AS STRING)" if pa.types.is_binary(type_) and not pa.types.is_string(field.type) else name
    return f"CAST({inner} AS {sql_type(type_)}) AS {name}"


def _declared(columns: Iterable[pa.Field]) -> str:
    return ", ".join(f"{_quoted(field.name)} {sql_type(field.type)}" for field in columns)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(_quoted, names))


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _text(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
