"""Counting the bytes of requests in memory."""

__all__ = ["Held"]


class Held:
    """Bytes of requests in memory, bounded: one count for a server, and below it one for each connection."""

    def __init__(self, size_max: int, above: "Held | None" = None) -> None:
        self._size_max = size_max
        self._above = above
        self.size = 0

    def take(self, size: int) -> bool:
        """Count more bytes, here and above; tell whether all bounds are kept. Give back what was taken in any case."""
        self.size += size
        kept = self._above is None or self._above.take(size)
        return kept and self.size <= self._size_max

    def give(self, size: int) -> None:
        """Count fewer bytes, here and above."""
        self.size -= size
        if self._above is not None:
            self._above.give(size)
