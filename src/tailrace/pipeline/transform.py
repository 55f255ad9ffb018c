"""The user's transformation of the typed changes of a table: Spark SQL, or a function of DataFrames."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.meta.pipeline import Definition
from tailrace.model.table import Column, Kind, TableName, TableSchema
from tailrace.pipeline.change_rows import CHANGE_COLUMNS, COMMIT_TIME, change_schema
from tailrace.pipeline.errors import TransformError
from tailrace.pipeline.evolve import fitted, usual
from tailrace.pipeline.fold import lacks_now
from tailrace.pipeline.sink.base import TableChanges
from tailrace.pipeline.sink.row import key_names
from tailrace.pipeline.transform_function import call_function
from tailrace.pipeline.truncation import is_truncation
from tailrace.pipeline.unchanged import UNCHANGED

__all__ = ["VIEW", "check_transformation", "frame_schema", "schema_of", "transformed", "transformed_frame"]

VIEW = "changes"
"""Name of the view that a transformation reads."""

_VALUES_LOGGER = "SQLQueryContextLogger"
"""Name under which PySpark writes what it raises into the log as well, with values of rows."""

_GIVEN = "tailrace_given"
"""Parameter of a statement that stands for the changes."""

_CHANGED = f"the transformation changes {', '.join(CHANGE_COLUMNS.names)}: leave them unchanged"

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

_KINDS_OF_CHANGES: Mapping[pa.DataType, Any] = {
    pa.string(): lambda type_: pa.types.is_string(type_) or pa.types.is_large_string(type_),
    pa.int64(): pa.types.is_integer,
    COMMIT_TIME: pa.types.is_timestamp,
}
"""Which types may stand for one of the columns of changes."""


def transformed_frame(frame: Any, definition: Definition, table: TableName) -> Any:
    """Return the DataFrame that the transformation of a pipeline makes of the changes of a table, not run yet.

    SQL reads them as `changes`, and by the table's own name where that is a plain one; a function gets the DataFrame.

    Raises:
        TransformError: Spark does not take it.
    """
    from pyspark.errors import PySparkException

    try:
        if definition.transform_function:
            return call_function(definition.transform_function, frame, table.wire, definition.py_files)
        return frame.sparkSession.sql(_statement(definition.transform, table), **{_GIVEN: frame})
    except PySparkException as error:
        raise _refused(error, table) from error


def transformed(one: TableChanges, definition: Definition, session: Any) -> TableChanges:
    """Return what the transformation of a pipeline makes of the changes of a table.

    It may leave rows out, and change, add and leave out columns, but not those of changes and of the key. Truncations
    pass it by: they have no row that it could judge. Where the source did not send some cells, which are null then, it
    is given `_tailrace_unchanged` as well.

    Raises:
        TransformError: Spark does not take it, or it makes columns that sinks do not take.
    """
    from pyspark.errors import PySparkException
    from pyspark.logger import PySparkLogger

    PySparkLogger.getLogger(_VALUES_LOGGER).disabled = True
    gone = is_truncation(one.changes)
    given = one.changes.filter(pc.invert(gone))
    frame = transformed_frame(session.createDataFrame(given, frame_schema(given.schema)), definition, one.schema.table)
    try:
        result: pa.Table = frame.toArrow()
    except PySparkException as error:
        raise _refused(error, one.schema.table) from error
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


def check_transformation(definition: Definition, schemas: Iterable[TableSchema], session: Any) -> None:
    """Look whether the transformation of a pipeline fits its tables, by their columns alone: no row is read.

    Raises:
        TransformError: It does not; the message says what to do.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import to_arrow_schema

    for schema in schemas:
        empty = session.createDataFrame([], frame_schema(change_schema(schema)))
        result = transformed_frame(empty, definition, schema.table)
        try:
            columns = result.schema
        except PySparkException as error:  # Spark Connect looks at it now
            raise _refused(error, schema.table) from error
        try:
            schema_of(to_arrow_schema(columns, timezone="UTC"), schema)
        except PySparkException as error:
            raise TransformError(
                f"the transformation of table {schema.table.wire} returns a column of a type that sinks do not take: "
                f"{_first_line(str(error))}"
            ) from error


def frame_schema(columns: pa.Schema) -> Any:
    """Return columns as Spark has them. Times without a zone stay without one."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(columns, prefer_timestamp_ntz=True)


def _statement(sql: str, table: TableName) -> str:
    """Return SQL in which `changes` and the table's own name are the changes that it is run with.

    A view would be one for the whole session: what Spark Connect looks at later would see what is in it then.
    """
    names = [VIEW, *([table.name] if _PLAIN.fullmatch(table.name) and table.name.lower() != VIEW else [])]
    given = ", ".join(f"{name} AS (TABLE {{{_GIVEN}}})" for name in names)
    inner = sql.strip().rstrip(";").replace("{", "{{").replace("}", "}}")
    return f"WITH {given} SELECT * FROM (\n{inner}\n)"  # noqa: S608 - it is the user's own SQL


def _refused(error: Any, table: TableName) -> TransformError:
    return TransformError(f"Spark rejected the transformation of table {table.wire}: {_reason(error)}")


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
    for field in CHANGE_COLUMNS:
        if not _KINDS_OF_CHANGES[field.type](result.field(field.name).type):
            raise TransformError(_CHANGED)
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
        raise TransformError(_CHANGED) from None


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
