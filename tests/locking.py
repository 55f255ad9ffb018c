"""One at a time, where several processes run tests: what is made once is made by one of them."""

import contextlib
import fcntl


@contextlib.contextmanager
def alone(path):
    """Hold the lock of a file for the length of a `with` block."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
