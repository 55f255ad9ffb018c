"""The columns of a target in each mode. Pure."""

from typing import assert_never

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.model.errors import SinkRefusedError
from tailrace.pipeline.evolve import united
from tailrace.pipeline.fold import OFFSET, VALIDITY, row_columns
from tailrace.pipeline.sink.base import Mode, TableChanges
from tailrace.pipeline.sink.row import key_names, refuse_rows_without_key, refuse_unidentified

__all__ = ["columns_of", "followed", "is_late", "is_ours", "target_key"]

_OURS = frozenset(
    {
        pa.bool_(),
        pa.int64(),
        pa.float64(),
        pa.string(),
        pa.binary(),
        pa.date32(),
        pa.timestamp("us"),
        pa.timestamp("us", tz="UTC"),
    }
)


def columns_of(one: TableChanges, mode: Mode) -> pa.Schema:
    """Return the columns that a target needs for these changes.

    `current` adds the offset of the change that made the row, `history` the validity of the version, and `append`
    has the changes as they are.

    Raises:
        SinkRefusedError: A row has no key, or the table none, or a column has a name that the mode needs.
    """
    row = pa.schema([one.changes.schema.field(name) for name in row_columns(one.changes)])
    match mode:
        case Mode.APPEND:
            return united(None, one.changes.schema)
        case Mode.CURRENT:
            added = pa.schema([(OFFSET, pa.int64())])
        case Mode.HISTORY:
            added = VALIDITY
        case _:
            assert_never(mode)
    for name in added.names:
        if name in row.names:
            reason = f"its column {name!r} has a name that mode {mode} needs: rename it in the transformation"
            raise SinkRefusedError(reason, table=one.schema.table.wire)
    refuse_unidentified([one.schema], mode)
    refuse_rows_without_key(one)
    return united(united(None, row), added)


def followed(present: pa.Schema, columns: pa.Schema) -> pa.Schema:
    """Return the columns that a table has to have to take others: its own, widened where need be, then the new ones.

    Columns of another type were created by someone else: they stay as they are, and take what fits them.
    """
    target = united(present, columns)
    others = {field.name: field.type for field in present if not is_ours(field.type)}
    return pa.schema([pa.field(field.name, others.get(field.name, field.type)) for field in target])


def is_ours(type_: pa.DataType) -> bool:
    """Tell whether a type is one that we make columns of."""
    if pa.types.is_list(type_):
        return is_ours(type_.value_type)
    return type_ in _OURS or pa.types.is_decimal128(type_)


def target_key(one: TableChanges, mode: Mode) -> list[str]:
    """Return the columns by which a row of a target is known; none where changes are appended."""
    match mode:
        case Mode.APPEND:
            return []
        case Mode.CURRENT:
            return key_names(one.schema)
        case Mode.HISTORY:
            return [*key_names(one.schema), "valid_from_offset"]
        case _:
            assert_never(mode)


def is_late(one: TableChanges, highest: int | None) -> bool:
    """Tell whether changes may be among those that a target has, whose highest offset is this one."""
    lowest = pc.min(one.changes[OFFSET]).as_py()
    return highest is not None and lowest is not None and lowest <= highest
