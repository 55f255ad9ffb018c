"""The process of a command: set up for many connections, ended by signals, and left after Spark ran in it."""

import atexit
import contextlib
import ctypes
import gc
import os
import resource
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import NoReturn

__all__ = ["DESCRIPTORS_WANTED", "forgo", "keep_small", "leave", "prepare_process", "until_stopped"]

DESCRIPTORS_WANTED = 65_536
"""Open files and sockets that a server asks for: more than the connections that it admits."""

_COLLECT_AFTER = (20_000, 20, 50)
"""How many new objects, and then how many collections of the younger ones, bring about a collection.

By default Python looks after each 700 new objects. With ten thousand streams, which stay, that doubles what opening
them costs, and a look through all objects holds up everything else meanwhile.
"""

_FORGONE = ("pandas", "numpy")
"""What Arrow imports wherever it is installed: a second and 45 MB for nothing."""

_ALLOCATOR = {-8: 2, -3: 4 << 20, -1: 16 << 20}
"""Settings of glibc's `mallopt` (M_ARENA_MAX, M_MMAP_THRESHOLD, M_TRIM_THRESHOLD): few places where free memory stays
behind, while buffers of the size of a chunk are used again without asking the system."""


def keep_small() -> None:
    """Have this process load and hold little memory. Before Arrow is imported and before there is a second thread.

    Arrow takes its buffers from the C library instead of an allocator of its own, which holds back what each thread
    has freed: 30 MB less while a hundred streams replay. ARROW_DEFAULT_MEMORY_POOL chooses otherwise.
    """
    for module in _FORGONE:
        forgo(module)
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):
        for parameter, value in _ALLOCATOR.items():
            library.mallopt(parameter, value)


def prepare_process() -> None:
    """Have collections of garbage be few, and allow as many descriptors as are wanted, or as the system admits."""
    gc.collect()
    gc.freeze()  # what was imported is never garbage
    gc.set_threshold(*_COLLECT_AFTER)
    _allow_descriptors(DESCRIPTORS_WANTED)


def forgo(module: str) -> None:
    """Have this process do without a module, as if it were not installed. Before the first import of it."""
    sys.meta_path.insert(0, _Absent(module))


def leave(code: int) -> NoReturn:
    """End this process without taking the interpreter apart.

    Python ends the threads that are left by unwinding them (before 3.14). A thread of Spark's gateway that is inside
    C++ code at that moment aborts the process instead: "FATAL: exception not rethrown", and the exit code is lost.
    """
    atexit._run_exitfuncs()  # noqa: SLF001 - what sys.exit would do first
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


class _Absent(MetaPathFinder):
    """Finds that a module is not there."""

    def __init__(self, module: str) -> None:
        self._module = module

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Refuse the one module; leave all others to whoever comes next."""
        if fullname == self._module:
            raise ModuleNotFoundError(f"this process does without {fullname}", name=fullname)
        return None


def _allow_descriptors(wanted: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = sys.maxsize if hard == resource.RLIM_INFINITY else hard
    if soft != resource.RLIM_INFINITY and soft < min(wanted, most):
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, most), hard))


@contextlib.contextmanager
def until_stopped() -> Iterator[None]:
    """End the block at SIGINT or SIGTERM as at its own end: what it opened is closed, and the command goes on to 0.

    For the main thread. Also where SIGINT is ignored, as it is in the background of a shell's script.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    with contextlib.suppress(KeyboardInterrupt):
        yield
