"""Work beside the main thread, which waits for signals: none of them interrupts the work in the middle of a call."""

import os
import signal
import threading
import time
from collections.abc import Callable

import click

__all__ = ["Stop", "apart"]

_AGAIN_S_MIN = 1.0
"""Signals that come more quickly after the first are the same request: a terminal and a launcher may both send one."""

_LOOK_S = 0.2
_TELL_S = 5.0
"""From when on to say that the process is stopping."""


class Stop:
    """Notes that SIGINT or SIGTERM came; a second one ends the process at once, with 130. For the main thread."""

    def __init__(self) -> None:
        self._first_s: float | None = None
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._take)

    def asked(self) -> bool:
        """Tell whether the process is asked to end."""
        return self._first_s is not None

    @property
    def waited_s(self) -> float:
        """Return for how long it has been asked to."""
        return 0.0 if self._first_s is None else time.monotonic() - self._first_s

    def _take(self, *_: object) -> None:
        if self._first_s is None:
            self._first_s = time.monotonic()
        elif self.waited_s >= _AGAIN_S_MIN:
            os._exit(130)


def apart(work: Callable[[], None], stop: Stop) -> None:
    """Do `work` in a thread, and wait for its end; it looks itself whether it is to `stop`. Raises what it raises."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run, name="tailrace-work", daemon=True)
    thread.start()
    told = False
    while thread.is_alive():
        thread.join(_LOOK_S)
        if not told and stop.waited_s >= _TELL_S:
            click.echo("stopping: waiting for what is in hand; ask again to end at once", err=True)
            told = True
    if raised:
        raise raised[0]
