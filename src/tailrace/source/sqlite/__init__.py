"""The SQLite source: triggers copy each change into a table of the database, a reader turns them into commits.

The names are loaded when they are used: a query process imports a few modules of this package and has to start fast.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tailrace.source.sqlite.capture_setup import Status, exec_bulk, exec_ddl, remove, remove_reader, set_up, status
    from tailrace.source.sqlite.options import SqliteOptions
    from tailrace.source.sqlite.source import SqliteSource

__all__ = [
    "SqliteOptions",
    "SqliteSource",
    "Status",
    "exec_bulk",
    "exec_ddl",
    "remove",
    "remove_reader",
    "set_up",
    "status",
]

_HOMES = {"SqliteSource": "source", "SqliteOptions": "options"}
"""The modules of names that are not in `capture_setup`."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES.get(name, 'capture_setup')}"), name)
