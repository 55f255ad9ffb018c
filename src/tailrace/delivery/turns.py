"""Turns: streams share the event loop and the memory for what waits to be sent."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic

__all__ = ["Turns"]

_ROUND_S = 0.005
"""How long one round of the event loop may take while streams wait; then fewer of them have a turn in the next."""

_TURNS_MIN, _TURNS_FIRST, _TURNS_MAX = 4, 16, 256
"""How many turns are given in one round of the event loop: at least, at first, at most."""

_LIVE_CHANGES_MAX = 1024
"""A stream that is at most so far behind the head follows; all others replay."""

_UNSENT_BYTES_MAX = 64 << 20
"""Memory for what all streams together wait to send, where each waits with one piece that it shares with nobody."""

_PIECE_BYTES_MIN = 16 << 10
"""Least size to which the pieces of streams are cut, however many there are."""


class Turns:
    """Gives turns to streams: to those that follow first, then to those that replay. For tasks of one event loop.

    Among each of the two they are given in the order in which they ask. A quarter of all turns is for replays, however
    many follow.

    In a turn, a stream makes one piece and writes it. In each round of the loop only some have a turn, so that whoever
    else is served in between waits for a few milliseconds, however many streams have something to send. How many is
    found by how long rounds take. And the more streams there are, the smaller are their pieces: a stream whose client
    does not read holds one.
    """

    def __init__(self, time_s: Callable[[], float] = monotonic) -> None:
        self._time_s = time_s
        self._live: deque[asyncio.Future[None]] = deque()
        self._replays: deque[asyncio.Future[None]] = deque()
        self._most = self._left = _TURNS_FIRST
        self._armed = False
        self._busy_since_s: float | None = None
        self._streams = 0

    @contextmanager
    def joined(self) -> Iterator[None]:
        """Count a stream, for as long as it is open."""
        self._streams += 1
        try:
            yield
        finally:
            self._streams -= 1

    def piece_bytes(self, bytes_max: int) -> int:
        """Return how large a piece of a stream may be that may have `bytes_max` if there are few.

        It is a power of two unless it is that: streams that come and go seldom change where others cut.
        """
        share = _UNSENT_BYTES_MAX // max(1, self._streams)
        return min(bytes_max, max(_PIECE_BYTES_MIN, 1 << (share.bit_length() - 1)))

    async def take(self, behind: int = 0) -> None:
        """Return when it is the caller's turn, who is that many changes behind.

        It lasts until the caller waits for something else.
        """
        live = behind <= _LIVE_CHANGES_MAX
        if self._left and not self._live and (live or not self._replays):
            self._left -= 1
            if self._left < self._most // 2:  # before that a round would be begun for each single change
                self._arm()
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        (self._live if live else self._replays).append(turn)
        self._arm()
        await turn

    def _arm(self) -> None:
        if not self._armed:
            self._armed = True
            asyncio.get_running_loop().call_soon(self._begin_round)

    def _begin_round(self) -> None:
        """Give the turns of the next round of the loop."""
        self._armed = False
        now_s = self._time_s()
        if self._busy_since_s is not None:
            slow = now_s - self._busy_since_s > _ROUND_S
            self._most = max(_TURNS_MIN, self._most * 3 // 4) if slow else min(_TURNS_MAX, self._most + 2)
        self._left = self._most
        kept = self._most // 4 if self._replays else 0
        while self._live and self._left > kept:
            self._give(self._live.popleft())
        while self._replays and self._left:
            self._give(self._replays.popleft())
        self._busy_since_s = now_s if self._live or self._replays else None
        if self._left < self._most:
            self._arm()

    def _give(self, turn: "asyncio.Future[None]") -> None:
        if not turn.done():
            turn.set_result(None)
            self._left -= 1
