"""Facts about back-pressure."""

import pytest

from tailrace.subscription.pressure import Pressure, PressureState, pressure_of, steady_lag_of

CASES = [
    # (cursor, head, horizon, retention) -> state, lag, remaining
    ("nothing to lose yet", (0, 0, 1, 4096), ("healthy", 0, 4096)),
    ("the contract's example", (7, 9, 1, 4096), ("healthy", 2, 4094)),
    ("one below half", (0, 2047, 1, 4096), ("healthy", 2047, 2049)),
    ("half of the window", (0, 2048, 1, 4096), ("pressure", 2048, 2048)),
    ("one below three quarters", (0, 3071, 1, 4096), ("pressure", 3071, 1025)),
    ("three quarters", (0, 3072, 1, 4096), ("throttle", 3072, 1024)),
    ("three quarters are rounded up", (0, 3, 1, 5), ("pressure", 3, 2)),
    ("a window of one warns at one", (0, 1, 1, 1), ("throttle", 1, 0)),
    ("the very last change that can be kept", (0, 4096, 1, 4096), ("throttle", 4096, 0)),
    ("the next change is gone", (0, 4097, 2, 4096), ("resnapshot_required", 4097, 0)),
    ("without a count there is no scale", (0, 10**9, 1, None), ("healthy", 10**9, None)),
    ("without a count the horizon still counts", (0, 10, 2, None), ("resnapshot_required", 10, None)),
    ("an empty log with the cursor at its end", (9, 9, 10, None), ("healthy", 0, None)),
]


@pytest.mark.parametrize(("place", "wanted"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_pressure_follows_the_retained_window(place, wanted):
    cursor, head, horizon, retention = place
    state, lag, remaining = wanted
    found = pressure_of(cursor=cursor, head=head, horizon=horizon, retention_changes=retention)
    assert found == Pressure(PressureState(state), lag, remaining)


@pytest.mark.parametrize(
    ("place", "state"),
    [((0, 1, 1), "paused"), ((0, 3072, 1), "paused"), ((0, 4096, 1), "paused"), ((0, 4097, 2), "resnapshot_required")],
)
def test_a_pause_outranks_all_but_the_loss_of_the_place(place, state):
    cursor, head, horizon = place
    found = pressure_of(cursor=cursor, head=head, horizon=horizon, retention_changes=4096, paused=True)
    assert (found.state, found.lag) == (state, head)


@pytest.mark.parametrize("retention", [1, 2, 5, 8, None])
def test_the_state_is_the_same_up_to_the_steady_lag_and_another_behind_it(retention):
    def state(lag):
        return pressure_of(cursor=0, head=lag, horizon=1, retention_changes=retention).state

    for lag in range(20):
        steady = steady_lag_of(lag, retention)
        assert {state(further) for further in range(lag, (30 if steady is None else steady) + 1)} == {state(lag)}
        if steady is not None:
            assert state(steady + 1) is not state(lag)
