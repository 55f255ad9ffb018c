"""Finding the place in a log where a subscriber begins."""

import asyncio
from bisect import bisect_left
from typing import assert_never

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.model.errors import BehindHorizonError, BeyondHeadError
from tailrace.model.number import Offset, hlc_at
from tailrace.model.start import After, AtTime, CursorStart, Earliest, Latest, Start
from tailrace.subscription.log_view import LogWindow

__all__ = ["find_place", "place_of"]

_AHEAD_US = 10_000_000
"""How far the clock of a database may be ahead of ours."""


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
    """Return the offset before the first change that was committed at a time or later; the head where there is none.

    Commit times follow the order of the log only as far as the clock of the database does, which may be set back. What
    never falls is the time of append, in the hybrid timestamps; and a commit is not younger than its append, up to
    `_AHEAD_US`. So the log is bisected by those, and from there it is read until a change is late enough.
    """
    after = await _before_append(time_us - _AHEAD_US, log)
    while True:
        try:
            chunk = await log.read(after)
        except BehindHorizonError as error:
            after = max(after, Offset(error.horizon - 1))
            continue
        if chunk is None:
            return after
        late = pc.greater_equal(chunk.batch.column("commit_time_us"), pa.scalar(time_us, pa.int64()))
        row = pc.index(late.slice(after + 1 - chunk.first), pa.scalar(value=True)).as_py()
        if row >= 0:
            return Offset(after + row)
        after = chunk.last
        await asyncio.sleep(0)  # a long way must not keep others from their turn


async def _before_append(time_us: int, log: LogWindow) -> Offset:
    """Return the offset of a change before which nothing was appended at a time or later.

    Reads about as many chunks as the number of changes has binary digits.
    """
    stamp = hlc_at(time_us)
    below, above = Offset(log.horizon - 1), Offset(log.head + 1)  # appended earlier; appended at that time or later
    while below + 1 < above:
        middle = Offset((below + above) // 2)
        try:
            chunk = await log.read(Offset(middle - 1))
        except BehindHorizonError as error:
            below = max(below, Offset(error.horizon - 1))
            above = max(above, Offset(below + 1))
            continue
        assert chunk is not None
        stamps = chunk.batch.column("hlc").to_pylist()
        first_late = Offset(chunk.first + bisect_left(stamps, stamp))
        if first_late > chunk.last:
            below = max(below, chunk.last)
        elif first_late > chunk.first:
            return max(below, Offset(first_late - 1))
        else:
            above = min(above, chunk.first)
    return below
