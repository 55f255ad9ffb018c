"""Watching what operators want to know of: subscribers that fall behind, and what retention has removed."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence

from tailrace.model.number import Offset
from tailrace.model.subscription import Subscription, SubscriptionId
from tailrace.subscription.log_view import LogView
from tailrace.subscription.pressure import PressureState, warn_lag_of
from tailrace.subscription.status import SubscriptionStatus, status_of

__all__ = ["Trouble"]

logger = logging.getLogger(__name__)

_LOOK_S = 5.0
"""How often to look: nothing is logged more often."""

_AT_ONCE = 2000
"""Subscriptions that are looked at before others get their turn."""


class Trouble:
    """Tells in the diagnostics when the pressure on a subscription changes and when a horizon has moved.

    For tasks of one event loop. Keep `run` running in a task.
    """

    def __init__(
        self,
        logs: Mapping[str, LogView],
        subscriptions: Callable[[], Sequence[Subscription]],
        retention_changes: int | None,
    ) -> None:
        self._logs = logs
        self._subscriptions = subscriptions
        self._retention_changes = retention_changes
        self._states: dict[SubscriptionId, PressureState] = {}
        """Those that are not well."""
        self._horizons: dict[str, Offset] = {source: log.horizon for source, log in logs.items()}

    async def run(self, look_s: float = _LOOK_S) -> None:
        """Look from time to time until cancelled."""
        while True:
            await asyncio.sleep(look_s)
            self.look_at_horizons()
            subscriptions = self._subscriptions()
            for begin in range(0, len(subscriptions), _AT_ONCE):
                self.look_at(subscriptions[begin : begin + _AT_ONCE])
                await asyncio.sleep(0)
            self._states = {one.id: self._states[one.id] for one in subscriptions if one.id in self._states}

    def look_at_horizons(self) -> None:
        """Tell which logs have less than when they were looked at last."""
        for source, log in self._logs.items():
            removed = log.horizon - self._horizons[source]
            if removed > 0:
                window = {"source": source, "horizon": log.horizon, "head": log.head, "removed": removed}
                logger.info("horizon moved", extra=window)
                self._horizons[source] = log.horizon

    def look_at(self, subscriptions: Sequence[Subscription]) -> None:
        """Tell which subscriptions are in another state than when they were looked at last."""
        calm = {source: self._calm(log) for source, log in self._logs.items()}
        for one in subscriptions:
            log = self._logs.get(one.source)
            if log is None or one.paused or (one.cursor >= calm[one.source] and one.id not in self._states):
                continue  # a pause is logged when it begins
            self._move(status_of(one, log, self._retention_changes))

    def _calm(self, log: LogView) -> int:
        """Return the cursor from which on a subscription is surely well: most are, and are looked at no further."""
        behind = log.horizon - 1
        if self._retention_changes is None:
            return behind
        return max(behind, log.head - warn_lag_of(self._retention_changes) + 1)

    def _move(self, status: SubscriptionStatus) -> None:
        number, pressure = status.subscription.id, status.pressure
        if self._states.get(number, PressureState.HEALTHY) is pressure.state:
            return
        fields = {
            "subscription": number,
            "source": status.subscription.source,
            "state": pressure.state.value,
            "lag": pressure.lag,
            "cursor": status.subscription.cursor,
        }
        if pressure.state is PressureState.HEALTHY:
            del self._states[number]
            logger.info("subscription caught up", extra=fields)
            return
        self._states[number] = pressure.state
        if pressure.state is PressureState.RESNAPSHOT_REQUIRED:
            logger.warning("subscription lost changes to retention", extra={**fields, "horizon": status.horizon})
        else:
            logger.info("subscription falls behind", extra=fields)
