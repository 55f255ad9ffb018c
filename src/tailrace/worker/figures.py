"""What workers count, so that the metrics of the main process are those of the whole server. Pure.

A worker counts into metrics of its own, as the main process does, and now and then says by how much they have grown.
"""

from collections.abc import Mapping

from prometheus_client import Counter

from tailrace.metrics import Metrics
from tailrace.model.number import Offset
from tailrace.subscription.lag import Lags
from tailrace.worker.message import Figures

__all__ = ["Tally", "add_figures"]

_COUNTERS = ("encoded_changes", "delivered_changes", "delivered_bytes", "resnapshots")
"""Counters that delivery moves, by their names in `Metrics`."""

_Labels = tuple[tuple[str, str], ...]


class Tally:
    """Finds by how much counters have grown since the last look."""

    def __init__(self, metrics: Metrics, lags: Mapping[str, Lags]) -> None:
        self._metrics = metrics
        self._lags = lags
        self._seen: dict[tuple[str, _Labels], float] = {}

    def take(self, places: Mapping[int, Offset], *, measured: bool = False) -> Figures:
        """Return what happened since the last call; `places` are those of the feeds that have moved."""
        counts = []
        for name in _COUNTERS:
            for labels, value in _values(getattr(self._metrics, name)):
                before = self._seen.get((name, labels), 0.0)
                if value > before:
                    counts.append((name, dict(labels), value - before))
                    self._seen[name, labels] = value
        lags = {
            source: (known.delivered_through, known.delivery_s, known.end_to_end_s)
            for source, known in self._lags.items()
            if known.delivered_through
        }
        return Figures(counts, lags, dict(places), measured)


def add_figures(figures: Figures, metrics: Metrics, lags: Mapping[str, Lags]) -> None:
    """Add what a worker has counted to the metrics of the server."""
    for name, labels, count in figures.counts:
        counter: Counter = getattr(metrics, name)
        (counter.labels(**labels) if labels else counter).inc(count)
    for source, (through, delivery_s, end_to_end_s) in figures.lags.items():
        if source in lags:
            lags[source].delivered_elsewhere(through, delivery_s, end_to_end_s)


def _values(counter: Counter) -> list[tuple[_Labels, float]]:
    return [
        (tuple(sorted(sample.labels.items())), sample.value)
        for family in counter.collect()
        for sample in family.samples
        if sample.name.endswith("_total")
    ]
