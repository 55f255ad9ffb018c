"""How often the reader looks for commits. Pure.

Whoever commits in WAL mode first writes bytes and then makes them visible, so a look right after the bytes were written
may come too early. There are two ways to look:

* **Listening**: all that was written was seen. Wait for the next write; look without one only now and then, for a
  commit whose bytes were written before we listened.
* **Hurrying**: something was written and cannot be seen yet. Look again soon, then ever less often, until it can be
  seen or the time in which that is to be expected is over.
"""

__all__ = ["Pace"]

_HURRY_S = (0.0001, 0.0002, 0.0004, 0.0008, 0.002, 0.004, 0.008)
"""Pauses between looks while a commit is expected; the last one is repeated. They about double, so a commit that takes
long to become visible is seen after about twice that time at most."""

_LISTEN_S = (0.002, 0.008, 0.032)
"""Longest waits for a write while one may have been missed; the last one is repeated."""

_REST_S = 0.0005
_REST_MAX_S = 0.008
_REST_CHANGE_S = 0.0001
"""Least time from a look that found changes to the next one; it grows with the number of changes found, so with more
than 10 000 changes a second the reader looks less often: the more at once, the less it costs, also the writer."""

_FEW_CHANGES = 8
"""Up to this many changes at a look, commits come singly: there is time to take each on its own."""

_REST_LOCKED_S = 0.025
"""The same where readers lock writers out, that is without WAL: the less often we look, the less often one meets us."""


class Pace:
    """Decides when to look next. Used by one thread.

    `settle_s` is how long after a write its commit may become visible; `idle_s` is how often to look when nothing was
    written for longer than that. Times are those of a clock that never goes back.
    """

    def __init__(self, settle_s: float, idle_s: float, now_s: float) -> None:
        self._settle_s = settle_s
        self._idle_s = idle_s
        self._since_s = now_s
        self._rest_s = 0.0
        self._waits = 0
        self.listens = True
        """Whether a write must be noticed from before the next look on."""

        self.few = True
        """Whether few changes were found when some were found last."""

        self.prompt = False
        """Whether the last look that saw something new was the first one after a write."""

    def seen(self, now_s: float, changes: int, *, locks_writers: bool) -> None:
        """Take notice of a look that saw something new, be it changes or not: nothing is expected any more."""
        self.prompt = not self.listens and not self._waits
        self._since_s = now_s
        self._waits = 0
        self.listens = True
        self.few = changes <= _FEW_CHANGES
        self._rest_s = min(max(_REST_S, changes * _REST_CHANGE_S), _REST_MAX_S)
        if changes and locks_writers:
            self._rest_s = _REST_LOCKED_S

    def rest_s(self, now_s: float) -> float:
        """Return how long not to look after the last look that saw something new; 0 or less when that is over."""
        return self._since_s + self._rest_s - now_s

    def touched(self, now_s: float) -> None:
        """Take notice of a write."""
        self._since_s = now_s
        self._waits = 0
        self.listens = False

    def pause_s(self, now_s: float) -> float:
        """Return how long to wait after a look that saw nothing new: for a write where it `listens`."""
        if now_s - self._since_s >= self._settle_s:
            listened, self.listens = self.listens, True
            return self._idle_s if listened else 0.0
        steps = _LISTEN_S if self.listens else _HURRY_S
        step = steps[min(self._waits, len(steps) - 1)]
        self._waits += 1
        return step
