"""Finding the place in a log where a subscriber begins."""

from bisect import bisect_left
from typing import assert_never

from tailrace.model.errors import BehindHorizonError, BeyondHeadError
from tailrace.model.number import Offset
from tailrace.model.start import After, AtTime, CursorStart, Earliest, Latest, Start
from tailrace.subscription.log_view import LogWindow

__all__ = ["find_place", "place_of"]


def place_of(start: Start, log: LogWindow) -> Offset:
    """Return the offset after which a feed begins.

    Raises:
        BeyondHeadError: It lies beyond the newest change.
    """
    match start:
        case Earliest():
            return Offset(log.horizon - 1)
        case Latest():
            return log.head
        case After(offset):
            if offset > log.head:
                raise BeyondHeadError(requested=offset, head=log.head)
            return offset
        case _:
            assert_never(start)


async def find_place(start: CursorStart, log: LogWindow) -> Offset:
    """Return the offset after which a subscription begins.

    Raises:
        BeyondHeadError: It lies beyond the newest change.
    """
    return await _before_time(start.time_us, log) if isinstance(start, AtTime) else place_of(start, log)


async def _before_time(time_us: int, log: LogWindow) -> Offset:
    """Return the offset of the last change that was committed before a time.

    Bisects the log by reading about as many chunks as the number of its changes has binary digits. Commit times follow
    the order of the log as far as the clock of the database does.
    """
    below, above = Offset(log.horizon - 1), Offset(log.head + 1)  # committed earlier; committed at that time or later
    while below + 1 < above:
        middle = Offset((below + above) // 2)
        try:
            chunk = await log.read(Offset(middle - 1))
        except BehindHorizonError as error:
            below = max(below, Offset(error.horizon - 1))
            above = max(above, Offset(below + 1))
            continue
        assert chunk is not None
        times_us = chunk.batch.column("commit_time_us").to_pylist()
        first_late = Offset(chunk.first + bisect_left(times_us, time_us))
        if first_late > chunk.last:
            below = max(below, chunk.last)
        elif first_late > chunk.first:
            return max(below, Offset(first_late - 1))
        else:
            above = min(above, chunk.first)
    return below
