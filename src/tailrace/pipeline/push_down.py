"""Filters that Spark hands down to a batch: what need not be read, and which rows pass. Pure.

Bounds of `_offset` narrow the interval that is read, and names in `_table` the tables that are asked for. Kinds of
changes, times and bounds of an integer key are handed on to the log, which knows of each of its blocks what is in it
and does not read those in which nothing can pass. All is compared in Arrow, too, before rows leave the Python process.
Times do not narrow the interval: the clock of a database may have been set back.
"""

from collections.abc import Callable, Collection, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, field
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)
from pyspark.sql.types import (
    BooleanType,
    DataType,
    DateType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from tailrace.model.op import Op
from tailrace.model.table import Kind, TableSchema
from tailrace.model.wanted import Conditions
from tailrace.pipeline.sink.base import ChangeType

__all__ = ["PushDown"]

_OFFSET = "_offset"
_TABLE = "_table"
_TIME = "_commit_timestamp"
_WORD = "_change_type"

_NUMBER_MIN, _NUMBER_MAX = -(2**63), 2**63 - 1
_ALL = (_NUMBER_MIN, _NUMBER_MAX)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_OPS: Mapping[str, Op] = {
    **{op.word: op for op in Op},
    str(ChangeType.UPDATE_PREIMAGE): Op.UPDATE,
    str(ChangeType.UPDATE_POSTIMAGE): Op.UPDATE,
    str(ChangeType.DROP): Op.SCHEMA,
}
"""Of which changes rows of each kind are made, in any layout."""

_VALUES: Mapping[type[DataType], type] = {
    BooleanType: bool,
    DateType: date,
    IntegerType: int,
    LongType: int,
    StringType: str,
    TimestampNTZType: datetime,
    TimestampType: datetime,
}
"""Types that Arrow compares as Spark does, with the type of the values that are compared to; floats have NaN."""

_COMPARISONS: Mapping[type[Filter], Callable[[Any, Any], Any]] = {
    EqualTo: pc.equal,
    GreaterThan: pc.greater,
    GreaterThanOrEqual: pc.greater_equal,
    LessThan: pc.less,
    LessThanOrEqual: pc.less_equal,
}
_TEXT_TESTS: Mapping[type[Filter], Callable[[Any, str], Any]] = {
    StringContains: pc.match_substring,
    StringEndsWith: pc.ends_with,
    StringStartsWith: pc.starts_with,
}


class PushDown(Struct):
    """The filters taken over so far."""

    after: int = 0
    through: int | None = None
    tables: set[str] | None = None
    """Tables of which rows can pass; None for all."""

    ops: frozenset[Op] = frozenset(Op)
    """Kinds of changes of which rows can pass."""

    bounds: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Between which numbers, both included, the values of columns have to be; times are microseconds."""

    filters: list[Filter] = field(default_factory=list)
    """What rows have to pass."""

    def take(self, one: Filter, schema: StructType) -> bool:
        """Take a filter over; tell whether it is done with. One that is not done exactly is left to Spark."""
        if not _is_exact(one, schema):
            return False
        path: tuple[str, ...] = getattr(one, "attribute", ())
        if path == (_OFFSET,) and self._bound(one):
            return True
        if path == (_TABLE,) and isinstance(one, EqualTo | In):
            named = set(one.value) if isinstance(one, In) else {one.value}
            self.tables = named if self.tables is None else self.tables & named
        elif path == (_WORD,) and isinstance(one, EqualTo | In):
            words = one.value if isinstance(one, In) else (one.value,)
            self.ops &= {_OPS[word] for word in words if word in _OPS}
        elif len(path) == 1 and isinstance(schema[path[0]].dataType, LongType | TimestampType):
            lower, upper = self.bounds.get(path[0], _ALL)
            least, most = _bounds(one)
            self.bounds[path[0]] = (max(lower, least), min(upper, most))
        self.filters.append(one)
        return True

    def conditions(self, schemas: Collection[TableSchema]) -> Conditions | None:
        """Return what changes have to meet, given the versions of the tables' schemas; None for nothing.

        The log has keys in the types of the source, and bounds are of integers: they say nothing there of a key of
        another kind, such as a time, which the log has as text, nor of one for which a type is declared.
        """
        others = {
            column.name
            for schema in schemas
            for column in schema.columns
            if column.as_type or column.kind is not Kind.I64
        }
        keys = {schema.key[0] for schema in schemas if len(schema.key) == 1} - others
        key = next((name for name in sorted(keys) if self.bounds.get(name, _ALL) != _ALL), None)
        found = Conditions(
            self.ops,
            key,
            *(_ALL if key is None else self.bounds[key]),
            *self.bounds.get(_TIME, _ALL),
        )
        return None if found == Conditions() else found

    def narrowed(self, after: int, through: int) -> tuple[int, int]:
        """Return what of an interval is to be read."""
        return max(after, self.after), through if self.through is None else min(through, self.through)

    def chosen(self, requested: Collection[str], known: Collection[str]) -> tuple[str, ...] | None:
        """Return of which tables rows are to be read: no names for all that were asked for; None for no table."""
        if self.tables is None:
            return ()
        found = sorted(self.tables & set(requested or known))
        return tuple(found) or None

    def filter(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows that pass."""
        for one in self.filters:
            batch = batch.filter(_mask(one, batch))
        return batch

    def _bound(self, one: Filter) -> bool:
        match one:
            case GreaterThan(value=value):
                self._narrow(after=value)
            case GreaterThanOrEqual(value=value):
                self._narrow(after=value - 1)
            case LessThan(value=value):
                self._narrow(through=value - 1)
            case LessThanOrEqual(value=value):
                self._narrow(through=value)
            case EqualTo(value=value):
                self._narrow(after=value - 1, through=value)
            case IsNotNull():
                pass  # every change has one
            case In(value=values):
                self._narrow(after=min(values) - 1, through=max(values))
                return False
            case _:
                return False
        return True

    def _narrow(self, after: int = 0, through: int | None = None) -> None:
        self.after = max(self.after, after)
        if through is not None:
            self.through = max(0, through if self.through is None else min(self.through, through))


def _bounds(one: Filter) -> tuple[int, int]:
    """Return between which numbers, both included, a value is that passes."""
    match one:
        case GreaterThan(value=value) | GreaterThanOrEqual(value=value):
            return _number(value), _NUMBER_MAX
        case LessThan(value=value) | LessThanOrEqual(value=value):
            return _NUMBER_MIN, _number(value)
        case EqualTo(value=value):
            return _number(value), _number(value)
        case In(value=values):
            return min(map(_number, values)), max(map(_number, values))
        case _:
            return _ALL


def _number(value: Any) -> int:
    return (value - _EPOCH) // timedelta(microseconds=1) if isinstance(value, datetime) else int(value)


def _is_exact(one: Filter, schema: StructType) -> bool:
    """Tell whether a filter lets the same rows pass here as in Spark."""
    if isinstance(one, Not):
        return _is_exact(one.child, schema)
    path: tuple[str, ...] = getattr(one, "attribute", ())
    if len(path) != 1 or path[0] not in schema.names:
        return False
    type_ = schema[path[0]].dataType
    kind = type(type_)
    if kind is StringType and type_ != StringType():
        return False  # it has a collation, which Arrow does not know
    match one:
        case IsNull() | IsNotNull():
            return True
        case In(value=values):
            return bool(values) and all(_is_comparable(value, kind) for value in values)
        case EqualNullSafe(value=value):
            return value is None or _is_comparable(value, kind)
        case StringContains() | StringEndsWith() | StringStartsWith():
            return kind is StringType and type(one.value) is str
        case _:
            return type(one) in _COMPARISONS and _is_comparable(getattr(one, "value", None), kind)


def _is_comparable(value: object, kind: type[DataType]) -> bool:
    if type(value) is not _VALUES.get(kind):
        return False
    return not isinstance(value, datetime) or (value.tzinfo is not None) == (kind is TimestampType)


def _mask(one: Filter, batch: pa.RecordBatch) -> Any:
    """Return of each row whether it passes; null, where SQL has it so, is no."""
    if isinstance(one, Not):
        return pc.invert(_mask(one.child, batch))
    column = batch.column(getattr(one, "attribute", ("",))[0])
    match one:
        case IsNull():
            return pc.is_null(column)
        case IsNotNull():
            return pc.is_valid(column)
        case In(value=values):
            found = pc.is_in(column, value_set=pa.array(values, column.type))
            return pc.if_else(pc.is_valid(column), found, pa.scalar(None, pa.bool_()))
        case EqualNullSafe(value=value):
            if value is None:
                return pc.is_null(column)
            return pc.fill_null(pc.equal(column, pa.scalar(value, column.type)), fill_value=False)
        case StringContains() | StringEndsWith() | StringStartsWith():
            return _TEXT_TESTS[type(one)](column, one.value)
        case _:
            return _COMPARISONS[type(one)](column, pa.scalar(getattr(one, "value", None), column.type))
