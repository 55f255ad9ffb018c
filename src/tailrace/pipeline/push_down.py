"""Filters that Spark hands down to a batch: offsets as the interval to be read, simple comparisons as Arrow's. Pure."""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, field
from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, In, LessThan, LessThanOrEqual
from pyspark.sql.types import LongType, StringType, StructType

__all__ = ["PushDown"]

_OFFSET = "_offset"


class PushDown(Struct):
    """The filters taken over so far: an interval of offsets, and the values that columns may have."""

    after: int = 0
    through: int | None = None
    allowed: list[tuple[str, list[Any]]] = field(default_factory=list)

    def take(self, one: Filter, schema: StructType) -> bool:
        """Take a filter over; tell whether it is done with. One that is not done exactly is left to Spark."""
        path: tuple[str, ...] = getattr(one, "attribute", ())
        if len(path) != 1 or path[0] not in schema.names:
            return False
        name = path[0]
        if name == _OFFSET:
            return self._bound(one)
        kind = schema[name].dataType
        values = one.value if isinstance(one, In) else (one.value,) if isinstance(one, EqualTo) else ()
        wanted = str if isinstance(kind, StringType) else int if isinstance(kind, LongType) else None
        if wanted is None or not values or not all(type(value) is wanted for value in values):
            return False
        self.allowed.append((name, list(values)))
        return True

    def narrowed(self, after: int, through: int) -> tuple[int, int]:
        """Return what of an interval is to be read."""
        return max(after, self.after), through if self.through is None else min(through, self.through)

    def filter(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows that pass."""
        for name, values in self.allowed:
            column = batch.column(name)
            batch = batch.filter(pc.is_in(column, value_set=pa.array(values, column.type)))
        return batch

    def _bound(self, one: Filter) -> bool:
        match one:
            case GreaterThan(value=int(value)):
                self._narrow(after=value)
            case GreaterThanOrEqual(value=int(value)):
                self._narrow(after=value - 1)
            case LessThan(value=int(value)):
                self._narrow(through=value - 1)
            case LessThanOrEqual(value=int(value)):
                self._narrow(through=value)
            case EqualTo(value=int(value)):
                self._narrow(after=value - 1, through=value)
            case _:
                return False
        return True

    def _narrow(self, after: int = 0, through: int | None = None) -> None:
        self.after = max(self.after, after)
        if through is not None:
            self.through = max(0, through if self.through is None else min(self.through, through))
