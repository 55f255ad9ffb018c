"""The keeper: knows what is open on whose credentials, and ends it when those expire or are revoked."""

import asyncio
import heapq
from collections.abc import Callable
from types import TracebackType

from tailrace.access.keys import Keys
from tailrace.access.principal import Principal
from tailrace.clock import Clock
from tailrace.model.errors import AccessError, QuotaError, UnauthenticatedError

__all__ = ["End", "Hold", "Keeper"]

End = Callable[[AccessError], None]
"""Makes something end soon, for a reason. Called once, on the event loop; must not raise."""

_POLL_S = 1.0
"""How often credentials are looked at: as long as a stream may outlive them."""

_Group = tuple[str, int | None]
"""What ends together: the stored key, if any, and the time at which it ends."""


class Keeper:
    """Ends what is open on credentials that are no longer good. Keep `run` running in a task. For one event loop."""

    def __init__(self, keys: Keys, clock: Clock, held_max: int) -> None:
        """Let each principal have at most `held_max` things open."""
        self._keys = keys
        self._clock = clock
        self._held_max = held_max
        self._groups: dict[_Group, set[Hold]] = {}
        self._counts: dict[str, int] = {}
        self._due: list[tuple[int, str]] = []

    def __len__(self) -> int:
        return sum(map(len, self._groups.values()))

    def hold(self, principal: Principal, end: End, *, counted: bool = True) -> "Hold":
        """Watch over something for the length of a `with` block: `end` is called when its credentials are not good.

        What is `counted` counts against the principal's limit; entering may raise `QuotaError`.
        """
        return Hold(self, principal, end, counted=counted)

    async def run(self) -> None:
        """Look at the credentials again and again, until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(_POLL_S)

    async def look(self) -> None:
        """End what is no longer allowed."""
        for credential in await self._keys.refresh():
            for group in [group for group in self._groups if group[0] == credential]:
                self._end(group, UnauthenticatedError())
        now_us = self._clock.now_us()
        while self._due and self._due[0][0] <= now_us:
            time_us, credential = heapq.heappop(self._due)
            self._end((credential, time_us), UnauthenticatedError(expired=True))

    def add(self, hold: "Hold") -> None:
        """Watch over something.

        Raises:
            UnauthenticatedError: Its key was revoked since its principal was admitted.
            QuotaError: Its principal has as many open as it may.
        """
        principal = hold.principal
        group = _group_of(principal)
        if not self._keys.admits(principal.credential):
            raise UnauthenticatedError
        if hold.counted:
            count = self._counts.get(principal.name, 0)
            if count >= self._held_max:
                raise QuotaError(f"principal {principal.id} has {count} streams open, as many as it may: close some")
            self._counts[principal.name] = count + 1
        holds = self._groups.get(group)
        if holds is None:
            holds = self._groups[group] = set()
            if group[1] is not None:
                heapq.heappush(self._due, (group[1], group[0]))
        holds.add(hold)

    def remove(self, hold: "Hold") -> None:
        """Watch no longer over something that was added."""
        principal = hold.principal
        if hold.counted:
            self._counts[principal.name] -= 1
            if not self._counts[principal.name]:
                del self._counts[principal.name]
        group = _group_of(principal)
        holds = self._groups.get(group, set())
        holds.discard(hold)
        if not holds:
            self._groups.pop(group, None)
        if len(self._due) > 2 * len(self._groups) + 64:
            self._due = [(time_us, credential) for credential, time_us in self._groups if time_us is not None]
            heapq.heapify(self._due)

    def _end(self, group: _Group, reason: AccessError) -> None:
        for hold in list(self._groups.get(group, ())):
            hold.end(reason)


class Hold:
    """Something that is open on credentials, for the length of a `with` block."""

    __slots__ = ("_keeper", "counted", "end", "principal")

    def __init__(self, keeper: Keeper, principal: Principal, end: End, *, counted: bool) -> None:
        self._keeper = keeper
        self.counted = counted
        self.principal = principal
        self.end = end

    def __enter__(self) -> None:
        self._keeper.add(self)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._keeper.remove(self)


def _group_of(principal: Principal) -> _Group:
    return principal.credential, principal.expires_time_us
