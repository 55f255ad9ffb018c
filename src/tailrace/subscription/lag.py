"""How long changes take on their way: into the log, from there to a subscriber, and all in all."""

from bisect import bisect_left
from collections import deque

from tailrace.clock import Clock
from tailrace.model.chunk import Chunk
from tailrace.model.number import Offset

__all__ = ["Lags"]

_MARKS_KEPT = 1024
"""Growths of the log whose times are remembered."""


class Lags:
    """The newest lags of one log, in seconds. Old changes that are delivered once more do not count."""

    def __init__(self, clock: Clock) -> None:
        self.capture_s = 0.0
        """From the newest commit in the database to its place in the log."""

        self.delivery_s = 0.0
        """From the log to the first subscriber of the newest change delivered."""

        self.end_to_end_s = 0.0
        """From the commit in the database to the first subscriber of the newest change delivered."""

        self._clock = clock
        self._marks: deque[tuple[Offset, int]] = deque(maxlen=_MARKS_KEPT)
        self.delivered_through = Offset(0)
        """The newest change that was delivered."""

    def grown(self, head: Offset) -> None:
        """Note that the log has grown to `head` just now."""
        self._marks.append((head, self._clock.now_us()))

    def captured(self, chunk: Chunk, offset: Offset) -> None:
        """Note that a change has come into the log just now."""
        self.capture_s = self._since(_commit_time_us(chunk, offset))

    def delivered(self, chunk: Chunk, through: Offset) -> None:
        """Note that changes up to `through`, which is in the chunk, are being handed to a subscriber."""
        if through > self.delivered_through:
            self._deliver(through, _commit_time_us(chunk, through))

    def delivered_stored(self, through: Offset, commit_time_us: int) -> None:
        """Note that changes up to `through`, committed by then, are being handed to a subscriber."""
        if through > self.delivered_through:
            self._deliver(through, commit_time_us)

    def _deliver(self, through: Offset, commit_time_us: int) -> None:
        self.delivered_through = through
        self.end_to_end_s = self._since(commit_time_us)
        marks = self._marks
        if len(marks) > 1 and marks[-2][0] < through <= marks[-1][0]:
            place = len(marks) - 1  # as nearly always: the newest change
        else:
            place = bisect_left(marks, through, key=lambda mark: mark[0])
        if place < len(marks) and (place > 0 or len(marks) < _MARKS_KEPT):
            self.delivery_s = self._since(marks[place][1])

    def delivered_elsewhere(self, through: Offset, delivery_s: float, end_to_end_s: float) -> None:
        """Note that another process has handed changes up to `through` to a subscriber, and how long they took."""
        if through > self.delivered_through:
            self.delivered_through, self.delivery_s, self.end_to_end_s = through, delivery_s, end_to_end_s

    def _since(self, time_us: int) -> float:
        return max(0, self._clock.now_us() - time_us) / 1_000_000


def _commit_time_us(chunk: Chunk, offset: Offset) -> int:
    if len(chunk) == 1:  # one commit after the other: all who are delivered to want the same
        return chunk.cells("commit_time_us")[0]  # type: ignore[no-any-return]
    return chunk.batch.column("commit_time_us")[chunk.row_after(offset) - 1].as_py()  # type: ignore[no-any-return]
