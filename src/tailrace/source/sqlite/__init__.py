"""The SQLite source: triggers copy each change into a table of the database, a reader turns them into commits."""

from tailrace.source.sqlite.bulk import exec_bulk
from tailrace.source.sqlite.capture_setup import Status, exec_ddl, remove, remove_reader, set_up, status
from tailrace.source.sqlite.options import Reader, SqliteOptions
from tailrace.source.sqlite.source import SqliteSource

__all__ = [
    "Reader",
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
