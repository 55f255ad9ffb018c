"""Commands that run until they are stopped: being stopped is their proper end, however it is asked for."""

import contextlib
import signal
from collections.abc import Iterator

__all__ = ["until_stopped"]


@contextlib.contextmanager
def until_stopped() -> Iterator[None]:
    """End the block at SIGINT or SIGTERM as at its own end: what it opened is closed, and the command goes on to 0.

    For the main thread. Also where SIGINT is ignored, as it is in the background of a shell's script.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    with contextlib.suppress(KeyboardInterrupt):
        yield
