"""Dates and times that SQL databases cannot be given."""

from datetime import UTC, date, datetime

import pyarrow as pa
import pytest

from tailrace.model.errors import SinkRefusedError
from tailrace.pipeline.sink.sql import refuse_far_times

TIMES = [pa.timestamp("us"), pa.timestamp("us", tz="UTC")]
FIRST, LAST = datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)


def days_from(first):
    return (first - date(1970, 1, 1)).days


@pytest.mark.parametrize("type_", TIMES, ids=str)
def test_all_times_that_python_has_are_taken(type_):
    refuse_far_times(pa.table({"at": pa.array([FIRST, None, LAST], type_)}))


def test_all_dates_that_python_has_are_taken():
    refuse_far_times(pa.table({"at": pa.array([date.min, None, date.max])}))


@pytest.mark.parametrize("values", [[], [None]])
@pytest.mark.parametrize("type_", [pa.date32(), *TIMES], ids=str)
def test_no_time_at_all_is_taken(type_, values):
    refuse_far_times(pa.table({"at": pa.array(values, type_), "id": pa.array(values, pa.int64())}))


@pytest.mark.parametrize("day", [days_from(date.min) - 1, days_from(date.max) + 1])
def test_a_date_beyond_is_refused(day):
    far = pa.array([0, day], pa.int32()).cast(pa.date32())
    with pytest.raises(SinkRefusedError, match="'at' has a date outside the years"):
        refuse_far_times(pa.table({"at": far}))


@pytest.mark.parametrize("type_", TIMES, ids=str)
@pytest.mark.parametrize(("day", "step_us"), [(days_from(date.min), -1), (days_from(date.max) + 1, 0)])
def test_a_time_beyond_is_refused(type_, day, step_us):
    far = pa.array([0, day * 86_400_000_000 + step_us], pa.int64()).cast(type_)
    with pytest.raises(SinkRefusedError, match="'at' has a date outside the years"):
        refuse_far_times(pa.table({"at": far}))
