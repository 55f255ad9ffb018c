"""What is counted of change streams."""

from tailrace.metrics import Metrics

__all__ = ["WIRE", "Meter"]

WIRE = "change_stream"


class Meter:
    """Counts what is sent."""

    def __init__(self, metrics: Metrics) -> None:
        self._bytes = metrics.delivered_bytes.labels(WIRE)
        self.streams = metrics.feeds_open.labels(WIRE)
        self.lost = metrics.resnapshots.labels(WIRE)

    def sent(self, piece: bytes) -> None:
        """Count a write."""
        self._bytes.inc(len(piece))
