"""DuckDB as a calculator: one connection for each thread, as to make one takes as long as to use it."""

import threading
from typing import Any

__all__ = ["connection"]

_local = threading.local()


def connection() -> Any:
    """Return this thread's connection, which computes in this thread alone. DuckDB is imported when it is wanted."""
    found = getattr(_local, "found", None)
    if found is None:
        import duckdb

        found = _local.found = duckdb.connect(":memory:")
        found.execute("SET threads = 1")
    return found
