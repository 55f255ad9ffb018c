"""Facts about the bounds of consumers."""

import pytest

from tailrace.interface.coordinode.consumers import ConsumerStanding, EndReason, check_retention, passed
from tailrace.meta.consumer_store import Bounded, Strict
from tailrace.model.errors import InvalidRequestError

WITHIN = ConsumerStanding(lag_ms=100, retained_bytes=1000, silent_ms=50)


@pytest.mark.parametrize(
    ("retention", "standing", "reason"),
    [
        (Bounded(100, 1000, 50), WITHIN, None),
        (Bounded(99, 1000, 50), WITHIN, EndReason.PROGRESS_LAG),
        (Bounded(100, 999, 50), WITHIN, EndReason.RETAINED_BYTES),
        (Bounded(100, 1000, 49), WITHIN, EndReason.LIVENESS),
        (Bounded(100, 1000), ConsumerStanding(100, 1000, 10**9), None),
        (Bounded(1, 1, 1), WITHIN, EndReason.LIVENESS),
        (Strict(), ConsumerStanding(10**9, 5000, 10**9), None),
        (Strict(), ConsumerStanding(0, 5001, 0), EndReason.RETAINED_BYTES),
    ],
    ids=str,
)
def test_a_consumer_ends_beyond_its_bounds_and_not_at_them(retention, standing, reason):
    assert passed(retention, standing, 5000) is reason


def test_without_a_limit_strict_retention_keeps_everything():
    assert passed(Strict(), ConsumerStanding(10**12, 10**15, 10**12), None) is None


@pytest.mark.parametrize("retention", [Bounded(0, 1), Bounded(1, 0), Bounded(1, 1, 10_000), Bounded(1, 1, 0)], ids=str)
def test_bounds_that_cannot_be_kept_are_refused(retention):
    with pytest.raises(InvalidRequestError, match="must be more than"):
        check_retention(retention, 10_000)


@pytest.mark.parametrize("retention", [Strict(), Bounded(1, 1), Bounded(1, 1, 10_001)], ids=str)
def test_bounds_that_can_be_kept_are_taken(retention):
    check_retention(retention, 10_000)
