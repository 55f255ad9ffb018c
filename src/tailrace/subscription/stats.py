"""Figures over all subscriptions, and what in them needs attention. Pure but for looking at the service.

Names and order of the members are those of SkeinDB. Where there are several logs, `earliest_offset` and `latest_offset`
span them all, and counts are sums.
"""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Protocol

from msgspec import Struct

from tailrace.clock import Clock
from tailrace.metrics import Metrics
from tailrace.model.subscription import QueryTarget, Subscription
from tailrace.subscription.lag import Lags
from tailrace.subscription.log_view import LogView
from tailrace.subscription.pressure import Pressure, PressureState, pressure_of, throttle_lag_of, warn_lag_of

__all__ = ["Alert", "Measured", "StatsView", "SubscriptionStats", "alerts_of", "observe", "stats_of"]

_AGE_S_MAX = 1.0


class SubscriptionStats(Struct, frozen=True, kw_only=True):
    """The `cdc` section of `stats.snapshot`. None where retention does not count changes."""

    active_subscriptions: int
    table_subscriptions: int
    query_subscriptions: int
    total_lag: int
    max_lag: int
    resnapshot_subscriptions: int
    paused_subscriptions: int
    pressured_subscriptions: int
    throttle_recommended_subscriptions: int
    earliest_offset: int
    latest_offset: int
    retained_events: int
    retention_limit: int | None
    dropped_events_total: int
    warn_lag: int | None
    throttle_lag: int | None
    min_remaining_until_resnapshot: int | None


class Alert(Struct, frozen=True):
    """Something that needs attention. `count` is how many subscriptions it concerns."""

    name: str
    severity: str
    message: str
    count: int


class Measured(Protocol):
    """What has the figures: the subscription service."""

    @property
    def logs(self) -> Mapping[str, LogView]:
        """Return the logs by source name."""
        ...

    @property
    def retention_changes(self) -> int | None:
        """Return the scale of the pressure states in changes; None where there are none."""
        ...

    @property
    def lags(self) -> Mapping[str, Lags]:
        """Return how long changes take on their way, by source name."""
        ...

    def subscriptions(self) -> Sequence[Subscription]:
        """Return all subscriptions."""
        ...

    def subscriptions_kept(self) -> int:
        """Return how many subscriptions there are."""
        ...

    def lag_max(self) -> int:
        """Return the largest lag of any subscription, in changes."""
        ...


class StatsView:
    """The figures for those who ask for one at a time: taken again when they are a second old."""

    def __init__(self, service: Measured, clock: Clock) -> None:
        self._service = service
        self._clock = clock
        self._stats: SubscriptionStats | None = None
        self._due_s = 0.0

    @property
    def stats(self) -> SubscriptionStats:
        """Return the figures."""
        if self._stats is None or self._clock.monotonic_s() >= self._due_s:
            self._stats = stats_of(self._service)
            self._due_s = self._clock.monotonic_s() + _AGE_S_MAX
        return self._stats


def stats_of(service: Measured) -> SubscriptionStats:
    """Return the figures as they are now. Takes a moment for each subscription."""
    subscriptions = service.subscriptions()
    logs, retention_changes = service.logs, service.retention_changes
    places = {source: (log.head, log.horizon) for source, log in logs.items()}
    pressures: list[Pressure] = []
    for subscription in subscriptions:
        head, horizon = places.get(subscription.source, (subscription.cursor, subscription.cursor))
        pressures.append(
            pressure_of(
                cursor=subscription.cursor,
                head=head,
                horizon=horizon,
                retention_changes=retention_changes,
                paused=subscription.paused,
            )
        )
    states = [pressure.state for pressure in pressures]
    lags = [pressure.lag for pressure in pressures]
    throttled = states.count(PressureState.THROTTLE)
    remaining = [pressure.remaining for pressure in pressures if pressure.remaining is not None]
    return SubscriptionStats(
        active_subscriptions=len(subscriptions),
        table_subscriptions=sum(not isinstance(subscription.target, QueryTarget) for subscription in subscriptions),
        query_subscriptions=sum(isinstance(subscription.target, QueryTarget) for subscription in subscriptions),
        total_lag=sum(lags),
        max_lag=max(lags, default=0),
        resnapshot_subscriptions=states.count(PressureState.RESNAPSHOT_REQUIRED),
        paused_subscriptions=sum(subscription.paused for subscription in subscriptions),
        pressured_subscriptions=states.count(PressureState.PRESSURE) + throttled,
        throttle_recommended_subscriptions=throttled,
        earliest_offset=min((horizon for _, horizon in places.values()), default=0),
        latest_offset=max((head for head, _ in places.values()), default=0),
        retained_events=sum(head - horizon + 1 for head, horizon in places.values()),
        retention_limit=retention_changes,
        dropped_events_total=sum(horizon - 1 for _, horizon in places.values()),
        warn_lag=None if retention_changes is None else warn_lag_of(retention_changes),
        throttle_lag=None if retention_changes is None else throttle_lag_of(retention_changes),
        min_remaining_until_resnapshot=min(remaining, default=retention_changes),
    )


def alerts_of(stats: SubscriptionStats) -> Sequence[Alert]:
    """Return what in the figures needs attention, worst first."""
    warned = stats.pressured_subscriptions - stats.throttle_recommended_subscriptions
    possible = (
        Alert(
            "cdc_resnapshot_required",
            "critical",
            "subscriptions lost changes to retention: take new snapshots, then acknowledge or reset them",
            stats.resnapshot_subscriptions,
        ),
        Alert(
            "cdc_backpressure_throttle",
            "warning",
            "subscriptions are three quarters of the retained changes behind: have writers wait, or retain more",
            stats.throttle_recommended_subscriptions,
        ),
        Alert(
            "cdc_backpressure_warning",
            "warning",
            "subscriptions are half of the retained changes behind: see why their subscribers are slow",
            warned,
        ),
    )
    return [alert for alert in possible if alert.count]


def observe(service: Measured, metrics: Metrics, clock: Clock) -> None:
    """Have the gauges ask a service when someone looks at them."""
    view = StatsView(service, clock)
    metrics.lag_sum.set_function(lambda: view.stats.total_lag)
    metrics.remaining_min.set_function(lambda: _number(view.stats.min_remaining_until_resnapshot))
    for state, member in _STATES.items():
        metrics.states.labels(state).set_function(partial(lambda member: getattr(view.stats, member), member))
    for source, lags in service.lags.items():
        metrics.capture_lag.labels(source).set_function(partial(getattr, lags, "capture_s"))
        metrics.delivery_lag.labels(source).set_function(partial(getattr, lags, "delivery_s"))
        metrics.end_to_end_lag.labels(source).set_function(partial(getattr, lags, "end_to_end_s"))
    metrics.subscriptions.set_function(service.subscriptions_kept)
    metrics.lag_max.set_function(service.lag_max)
    for source, log in service.logs.items():
        metrics.log_head.labels(source).set_function(partial(getattr, log, "head"))
        metrics.log_horizon.labels(source).set_function(partial(getattr, log, "horizon"))


_STATES = {
    "paused": "paused_subscriptions",
    "pressured": "pressured_subscriptions",
    "throttle": "throttle_recommended_subscriptions",
    "resnapshot_required": "resnapshot_subscriptions",
}
"""States of subscriptions in the metrics, and where the figures have their numbers."""


def _number(count: int | None) -> float:
    return math.nan if count is None else count
