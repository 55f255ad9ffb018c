"""Values that SQL databases would take for others, or not give back. Pure."""

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.model.errors import SinkRefusedError

__all__ = ["refuse_far_times"]

_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
"""The first day of year 1 and the last of year 9999, from 1970 on."""

_DAY_US = 86_400_000_000


def refuse_far_times(rows: pa.Table) -> None:
    """Check that dates and times are in years that Arrow can write and drivers can read.

    Raises:
        SinkRefusedError: One is not.
    """
    for field in rows.schema:
        if pa.types.is_date32(field.type) or pa.types.is_timestamp(field.type):
            unit = 1 if pa.types.is_date32(field.type) else _DAY_US
            ends = pc.min_max(rows[field.name])
            first, last = ends["min"].value, ends["max"].value
            if first is not None and (first < _FIRST_DAY * unit or last >= (_LAST_DAY + 1) * unit):
                raise SinkRefusedError(f"column {field.name!r} has a date outside the years 1 to 9999")
