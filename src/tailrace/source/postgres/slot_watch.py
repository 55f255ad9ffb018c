"""Watches how much write-ahead log the server keeps for a slot, and acts when that is more than it may be. Blocking."""

import logging
import math
import threading
from collections.abc import Callable

from msgspec import Struct

from tailrace.clock import Clock
from tailrace.metrics import Metrics
from tailrace.model.errors import SourceError
from tailrace.source.postgres.catalog import Catalog
from tailrace.source.postgres.options import PostgresSettings
from tailrace.source.postgres.position import NEW_LOG, Slot

__all__ = ["Forecast", "SlotWatch", "forecast"]

logger = logging.getLogger(__name__)

WATCH_INTERVAL_S = 10.0
"""How often to look."""


class Forecast(Struct, frozen=True):
    """How much more may be kept before the slot is lost, and when that will be; infinite where it is not known."""

    room_bytes: float
    seconds: float


def _room_of(slot: Slot, keep_max_bytes: int | None) -> float:
    """Return how many more bytes may be kept for a slot: by the server's limit and ours, whichever comes first."""
    by_server = math.inf if slot.safe_bytes is None else max(0, slot.safe_bytes)
    ours = math.inf if keep_max_bytes is None else max(0, keep_max_bytes - slot.retained_bytes)
    return min(by_server, ours)


def forecast(slot: Slot, keep_max_bytes: int | None, before_bytes: int | None, elapsed_s: float) -> Forecast:
    """Return when there will be no room, if as much is kept more as since the last look."""
    room_bytes = _room_of(slot, keep_max_bytes)
    grown = 0 if before_bytes is None else slot.retained_bytes - before_bytes
    seconds = room_bytes * elapsed_s / grown if grown > 0 and elapsed_s > 0 else math.inf
    return Forecast(room_bytes, 0.0 if room_bytes == 0 else seconds)


class SlotWatch:
    """Looks at one slot again and again, over a connection of its own."""

    def __init__(
        self, source: str, url: str, settings: PostgresSettings, slot: str, clock: Clock, metrics: Metrics
    ) -> None:
        self._source = source
        self._url = url
        self._settings = settings
        self._slot = slot
        self._clock = clock
        self._gauges = metrics.slot
        self._keep_max_bytes = settings.keep_max_bytes
        self._catalog: Catalog | None = None
        self._last: tuple[float, Slot] | None = None
        self._warned = False

    def run(self, ending: threading.Event, on_dropped: Callable[[str], None]) -> None:
        """Look until the event comes; where the slot is to go, say why, and drop it. For a thread of its own.

        Whoever ends it does not wait: a server that is away may be waited for here.
        """
        while not ending.is_set():
            try:
                reason = self.look()
                if reason:
                    on_dropped(reason)  # before the stream breaks: nobody is to make the slot again
                    logger.error(reason, extra={"source": self._source})
                    self._drop()
            except SourceError:  # the reading thread notices, too
                self.close()
            ending.wait(WATCH_INTERVAL_S)
        self.close()

    def look(self) -> str:
        """Look at the slot; return why it has to go, where it has.

        Raises:
            SourceStateError, SourceUnavailableError: The server refuses, or is away.
        """
        if self._catalog is None:
            self._catalog = Catalog(self._url, self._settings)
        slot = self._catalog.slot(self._slot)
        if slot is None:
            return ""
        now_s = self._clock.monotonic_s()
        before_s, before = self._last or (now_s, None)
        self._last = (now_s, slot)
        ahead = forecast(
            slot, self._keep_max_bytes, None if before is None else before.retained_bytes, now_s - before_s
        )
        self._gauges.lag.labels(self._source).set(slot.lag_bytes)
        self._gauges.kept.labels(self._source).set(slot.retained_bytes)
        self._gauges.room.labels(self._source).set(ahead.room_bytes)
        self._gauges.overflow.labels(self._source).set(ahead.seconds)
        return self._judge(slot, before)

    def _judge(self, slot: Slot, before: Slot | None) -> str:
        limit = self._keep_max_bytes
        if limit is None or slot.retained_bytes <= limit:
            self._warned = False
            return ""
        if not self._warned:
            logger.warning(
                "the server keeps more write-ahead log than wal_keep_max",
                extra={"source": self._source, "slot": slot.name, "kept_bytes": slot.retained_bytes},
            )
        self._warned = True
        # A reader that moves will have it gone soon: only one that stands still does harm.
        stands = before is not None and before.confirmed_lsn == slot.confirmed_lsn
        if self._settings.wal_keep_action != "drop_slot" or not stands:
            return ""
        return (
            f"replication slot {slot.name} was dropped, because the server kept {slot.retained_bytes} bytes of "
            f"write-ahead log for it, more than wal_keep_max allows, and nothing of it was confirmed: changes are "
            f"missing from here on; {NEW_LOG}"
        )

    def _drop(self) -> None:
        slot = None if self._catalog is None else self._catalog.slot(self._slot)
        if self._catalog is None or slot is None:
            return
        if slot.active_pid is not None:
            self._catalog.rows("SELECT pg_terminate_backend(%s, 5000)", [slot.active_pid])
        self._catalog.drop_slot(slot.name)

    def close(self) -> None:
        """Disconnect."""
        if self._catalog is not None:
            self._catalog.close()
            self._catalog = None
