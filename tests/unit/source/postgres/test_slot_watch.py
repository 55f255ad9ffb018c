"""When there will be no room for more write-ahead log."""

import math

import pytest

from tailrace.source.postgres.position import Slot
from tailrace.source.postgres.slot_watch import Forecast, forecast


def slot(kept, safe=None):
    return Slot("s", "pgoutput", "app", 0, retained_bytes=kept, safe_bytes=safe)


@pytest.mark.parametrize(
    ("found", "limit", "before", "expected"),
    [
        (slot(100), None, 50, Forecast(math.inf, math.inf)),
        (slot(100, safe=400), None, None, Forecast(400, math.inf)),
        (slot(100, safe=400), None, 120, Forecast(400, math.inf)),
        (slot(100, safe=400), None, 60, Forecast(400, 100.0)),
        (slot(100, safe=400), 150, 60, Forecast(50, 12.5)),
        (slot(100, safe=400), 100, 60, Forecast(0, 0.0)),
        (slot(100, safe=-5), None, 100, Forecast(0, 0.0)),
    ],
)
def test_the_nearest_limit_counts_and_growth_says_when(found, limit, before, expected):
    assert forecast(found, limit, before, 10.0) == expected
