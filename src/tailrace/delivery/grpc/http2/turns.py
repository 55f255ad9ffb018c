"""Sharing the event loop among connections: what all of them may cost in one turn, and who comes first.

A frame is cheap to send and dear to read: a call that is opened and reset at once is a few bytes for the client and a
third of a millisecond for us. So time is what is bounded, not frames. Whoever has cost little lately comes before
whoever has cost much; among equals each has its share in turn.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

from tailrace.delivery.grpc.http2.options import TransportOptions

__all__ = ["Account", "ReadTurns", "ReadyConnection"]


class Account:
    """What one connection has cost lately, and how often it broke off or was refused. Pure."""

    def __init__(self, options: TransportOptions) -> None:
        self._options = options
        self._cost_s = 0.0
        self._offences = 0.0
        self._time_s = 0.0
        self.proven = False
        """Whether a call of it was admitted and answered: strangers come after those who are known to be of use."""

    def charge(self, cost_s: float, now_s: float) -> None:
        """Add what it has cost."""
        self._decay(now_s)
        self._cost_s += cost_s

    def offend(self, now_s: float) -> bool:
        """Take note of a call that was refused, or broken off before an answer; tell whether the client may go on.

        Either costs us as much as a good call, and is of no use to anybody.
        """
        self._decay(now_s)
        self._cost_s += self._options.offence_s
        self._offences += 1
        return self._offences <= self._options.offences_max

    def is_light(self, now_s: float) -> bool:
        """Tell whether it comes before others."""
        self._decay(now_s)
        return self.proven and self._cost_s < self._options.light_s

    def _decay(self, now_s: float) -> None:
        """Forget half of the cost with each second, and some offences."""
        passed_s = now_s - self._time_s
        if passed_s > 0:
            self._time_s = now_s
            # Halved each second: a burst is forgiven soon, a flood never gets ahead of its decay. Offences decay
            # linearly, so that a steady rate below the limit is allowed for ever.
            self._cost_s *= 0.5**passed_s
            self._offences = max(0.0, self._offences - passed_s * self._options.offences_per_s)


class ReadyConnection(Protocol):
    """A connection that has something to read."""

    account: Account

    def read_share(self, end_s: float) -> bool:
        """Read what has come until a point in time, but something in any case; tell whether there is more."""


class ReadTurns:
    """Has connections read what has come, each its share, and all together only so long in one turn of the loop.

    `now_s` is a clock of its own: that of an event loop may stand still for the length of a turn.
    """

    def __init__(self, options: TransportOptions, now_s: Callable[[], float] = time.monotonic) -> None:
        self._options = options
        self._loop = asyncio.get_running_loop()
        self.now_s = now_s
        self._left_s = options.turn_s
        self._light: deque[ReadyConnection] = deque()
        self._heavy: deque[ReadyConnection] = deque()
        self._next: asyncio.Handle | None = None

    def offer(self, reader: ReadyConnection) -> bool:
        """Have a connection read now, or put it in its place of the queue; tell whether it has read everything.

        It must not be offered again before `read_share` has said that nothing is left.
        """
        # A light connection waits behind light ones only; a heavy one behind everybody. Reading at once is allowed only
        # where nobody with the same right waits: order of arrival within a class.
        waiting = self._light if reader.account.is_light(self.now_s()) else self._light or self._heavy
        if self._left_s > 0 and not waiting:
            return self._give(reader)
        self._enqueue(reader)
        return False

    @property
    def crowded(self) -> bool:
        """Whether too many connections wait, so that no more should be accepted for now."""
        return len(self._light) + len(self._heavy) >= self._options.waiting_max

    def charge(self, cost_s: float) -> None:
        """Take note of work that was begun now and is done later in the same turn."""
        self._left_s -= cost_s

    def _give(self, reader: ReadyConnection) -> bool:
        begun_s = self.now_s()
        more = reader.read_share(begun_s + self._options.share_s)
        now_s = self.now_s()
        # Charged by the clock, not by frames: a head with 400 headers costs as much as hundreds of small ones.
        reader.account.charge(now_s - begun_s, now_s)
        self._left_s -= now_s - begun_s
        if more:
            self._enqueue(reader)
        self._schedule()
        return not more

    def _enqueue(self, reader: ReadyConnection) -> None:
        (self._light if reader.account.is_light(self.now_s()) else self._heavy).append(reader)
        self._schedule()

    def _schedule(self) -> None:
        if self._next is None:
            self._next = self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        """Begin a turn: those who cost little first, but one of the others in any case."""
        self._next = None
        self._left_s = self._options.turn_s
        # One heavy connection in each turn, before the light ones: without it, enough light ones could starve it for
        # ever.
        if self._heavy:
            self._give(self._heavy.popleft())
        for queue in (self._light, self._heavy):
            # As many as wait now, not until the queue is empty: those that are put back in this loop have had their
            # share.
            for _ in range(len(queue)):
                if self._left_s <= 0:
                    return
                self._give(queue.popleft())
