"""How a pipeline is, as people are told."""

import pytest

from tailrace.meta.pipeline import Definition, Figures, Pipeline, RangeProgress, SinkState, Stage
from tailrace.meta.pipeline_status import status_of
from tailrace.model.key_interval import KeyInterval


def status(head, *, rows=10, copied=4, offset=70, begun=True, lag_s=None):
    definition = Definition(name="lake", source="shop", tables=("orders",), sink="console:")
    figures = Figures(rows=rows, head=70)
    given = {"paused": False, "cancelled": False, "owner": "me", "leased": True, "generation": 0}
    given["sink_state"] = SinkState.EMPTY
    found = Pipeline(definition, **given, subscription=None, copying=None, figures=figures)
    one = RangeProgress("orders", 1, Stage.INCREMENTAL_LOG, KeyInterval(None, None), None, 5, 5, offset, copied)
    return status_of(found, [one] if begun else [], sink="console:", head=head, lag_s=lag_s)


@pytest.mark.parametrize(
    ("head", "lag_s", "expected"),
    [
        (100, 2.5, (100, 30, 2.5)),
        (70, None, (70, 0, 0.0)),
        (None, None, (70, None, None)),  # the server is away: what waits there nobody knows
    ],
)
def test_the_lag_is_unknown_where_the_head_of_the_log_is(head, lag_s, expected):
    found = status(head, lag_s=lag_s)
    assert (found.head, found.lag, found.lag_s) == expected


def test_a_pipeline_that_has_not_begun_has_no_lag():
    assert status(None, begun=False).lag == 0


@pytest.mark.parametrize(("rows", "copied", "expected"), [(10, 4, 10), (10, 13, 13)])
def test_no_more_rows_are_copied_than_there_are(rows, copied, expected):
    found = status(70, rows=rows, copied=copied)
    assert (found.rows, found.rows_copied) == (expected, copied)
