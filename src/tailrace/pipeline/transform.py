"""The user's transformation: Spark SQL over the typed changes of a table."""

import re
from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.model.table import Column, Kind, TableSchema
from tailrace.pipeline.change_rows import CHANGE_COLUMNS
from tailrace.pipeline.errors import TransformError
from tailrace.pipeline.evolve import fitted, usual
from tailrace.pipeline.fold import lacks_now
from tailrace.pipeline.sink.base import TableChanges
from tailrace.pipeline.sink.row import key_names
from tailrace.pipeline.truncation import is_truncation
from tailrace.pipeline.unchanged import UNCHANGED

__all__ = ["VIEW", "schema_of", "transformed"]

VIEW = "changes"
"""Name of the view that a transformation reads."""

_VALUES_LOGGER = "SQLQueryContextLogger"
"""Name under which PySpark writes what it raises into the log as well, with values of rows."""

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_KINDS: Sequence[tuple[Any, Kind]] = (
    (pa.types.is_boolean, Kind.BOOL),
    (pa.types.is_integer, Kind.I64),
    (pa.types.is_floating, Kind.F64),
    (pa.types.is_decimal, Kind.DEC),
    (pa.types.is_binary, Kind.BYTES),
    (pa.types.is_date, Kind.DATE),
    (pa.types.is_timestamp, Kind.DATETIME),
    (pa.types.is_string, Kind.STR),
    (pa.types.is_large_string, Kind.STR),
    (pa.types.is_large_binary, Kind.BYTES),
    (pa.types.is_null, Kind.STR),
)


def transformed(one: TableChanges, sql: str, session: Any) -> TableChanges:
    """Return what a transformation makes of the changes of a table.

    It reads the view `changes`, which also has the table's name. It may leave rows out, and change, add and leave out
    columns, but not those of changes and of the key. Truncations pass it by: they have no row that it could judge.
    Where the source did not send some cells, which are null then, the view has `_tailrace_unchanged` as well.

    Raises:
        TransformError: Spark does not take it, or it makes columns that sinks do not take.
    """
    from pyspark.errors import PySparkException
    from pyspark.logger import PySparkLogger

    PySparkLogger.getLogger(_VALUES_LOGGER).disabled = True
    gone = is_truncation(one.changes)
    frame = session.createDataFrame(one.changes.filter(pc.invert(gone)))
    names = [VIEW, *([one.schema.table.name] if _PLAIN.fullmatch(one.schema.table.name) else [])]
    for name in names:
        frame.createOrReplaceTempView(name)
    try:
        result: pa.Table = session.sql(sql).toArrow()
    except PySparkException as error:
        raise TransformError(
            f"Spark rejected the transformation of table {one.schema.table.wire}: {_reason(error)}"
        ) from error
    finally:
        for name in names:  # what is transformed next must not see the rows of this table
            session.catalog.dropTempView(name)
    if UNCHANGED not in result.column_names and lacks_now(one.changes):
        raise TransformError(
            f"the source did not send all cells of table {one.schema.table.wire}, and the transformation leaves out "
            f"{UNCHANGED}, which tells which: select it, too, e.g. by *, or have the source send whole rows"
        )
    schema, changes = schema_of(result.schema, one.schema), _ordered(result, one.schema)
    truncations = one.changes.filter(gone).select(CHANGE_COLUMNS.names)
    if truncations.num_rows:
        changes = pa.concat_tables([changes, fitted(truncations, changes.schema)])
    return msgspec.structs.replace(one, schema=schema, changes=changes)


def schema_of(result: pa.Schema, schema: TableSchema) -> TableSchema:
    """Return the schema of what a transformation made of a table.

    Raises:
        TransformError: A column is missing that sinks need, there twice, or of a type that they do not take.
    """
    needed = [*CHANGE_COLUMNS.names, *key_names(schema)]
    for name in needed:
        if name not in result.names:
            raise TransformError(f"the transformation leaves out column {name!r}: select {', '.join(needed)}, too")
    for field in result:
        if result.names.count(field.name) > 1:
            raise TransformError(f"the transformation returns several columns {field.name!r}: give each its own name")
        if not any(fits(_item_type(field.type)) for fits, _ in _KINDS):
            raise TransformError(
                f"the transformation returns column {field.name!r} of type {field.type}, which sinks do not take: "
                "make it text, e.g. by CAST(… AS STRING) or to_json(…)"
            )
    hidden = [] if schema.key else key_names(schema)
    columns = [
        schema.column(field.name) or _column(field)
        for field in result
        if field.name not in CHANGE_COLUMNS.names and field.name not in hidden and field.name != UNCHANGED
    ]
    return msgspec.structs.replace(schema, columns=tuple(columns))


def _ordered(result: pa.Table, schema: TableSchema) -> pa.Table:
    """Return the columns in the order that sinks expect, in the types that they know.

    Raises:
        TransformError: Those of changes cannot be read as what they were.
    """
    first = [*CHANGE_COLUMNS.names, *([] if schema.key else key_names(schema))]
    markers = [UNCHANGED] if UNCHANGED in result.column_names else []
    rest = [name for name in result.column_names if name not in first and name not in markers]
    table = result.select([*first, *rest, *markers])
    fields = [_field(field) for field in table.schema]
    try:
        return table.cast(pa.schema(fields))
    except pa.ArrowException:
        named = ", ".join(CHANGE_COLUMNS.names)
        raise TransformError(f"the transformation changes {named}: leave them unchanged") from None


def _field(field: pa.Field) -> pa.Field:
    if field.name in CHANGE_COLUMNS.names:
        return pa.field(field.name, CHANGE_COLUMNS.field(field.name).type)
    return pa.field(field.name, _known_type(field.type))


def _known_type(type_: pa.DataType) -> pa.DataType:
    """Return the type that sinks know for one of Spark."""
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return pa.list_(_known_type(type_.value_type))
    if pa.types.is_integer(type_):
        return pa.int64()
    if pa.types.is_floating(type_):
        return pa.float64()
    return pa.string() if pa.types.is_null(type_) else usual(type_)


def _item_type(type_: pa.DataType) -> pa.DataType:
    """Return the type of the items of a list, of all its dimensions; of any other type itself."""
    while pa.types.is_list(type_) or pa.types.is_large_list(type_):
        type_ = type_.value_type
    return type_


def _column(field: pa.Field) -> Column:
    """Return what a column that a transformation made is."""
    item = next(kind for fits, kind in _KINDS if fits(_item_type(field.type)))
    dimensions, type_ = 0, field.type
    while pa.types.is_list(type_) or pa.types.is_large_list(type_):
        dimensions, type_ = dimensions + 1, type_.value_type
    if not dimensions:
        return Column(field.name, item)
    return Column(field.name, Kind.ARRAY, element=Column("", item), dimensions=dimensions)


def _reason(error: Any) -> str:
    """Return why Spark refuses. A message about a row shows values of it: only the error's name is shown.

    The name is that of Spark's documentation, e.g. `CAST_INVALID_INPUT`.
    """
    from pyspark.errors import AnalysisException

    if isinstance(error, AnalysisException):
        return _first_line(str(error))
    where = "".join(f", in {context.fragment()}" for context in error.getQueryContext()[:1])
    return f"it fails on a row with {error.getCondition() or type(error).__name__}{where}"


def _first_line(text: str) -> str:
    return text.strip().splitlines()[0][:500] if text.strip() else "no reason given"
