"""A worker: the process that `serve --workers` starts to deliver streams. People do not start it.

`python -m tailrace.cli.worker LEVEL FORM DESCRIPTOR`: how to log, and the channel to the process that started it.
"""

import ctypes
import importlib
import os
import signal
import sys
from typing import Any

from tailrace.cli.process import keep_small, prepare_process
from tailrace.diagnostics import set_up_logging

__all__ = ["main"]

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Serve until the process that started this one has had enough, or is gone."""
    level, form, descriptor = sys.argv[1:]
    _end_with_parent()
    # The main process decides when to end: signals for all processes of a terminal or of a unit are for it.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    keep_small()  # before Arrow is imported
    set_up_logging(level, form)
    process: Any = importlib.import_module("tailrace.worker.process")
    uvloop: Any = importlib.import_module("uvloop")
    prepare_process()
    uvloop.run(process.run(int(descriptor)))


def _end_with_parent() -> None:
    """Have the system kill this process when its parent ends, however that ends."""
    parent = os.getppid()
    library = ctypes.CDLL(None)
    if hasattr(library, "prctl"):
        library.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it has ended already
        os._exit(0)


if __name__ == "__main__":
    main()
