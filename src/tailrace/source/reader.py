"""Who reads the changes of a database. Imports nothing heavy: processes that run SQL have to start fast."""

from msgspec import Struct

__all__ = ["Reader"]


class Reader(Struct, frozen=True):
    """Who reads the changes: each reader confirms for itself, and the slowest one keeps the changes in the database.

    `name` is the id of the log that is written. An ephemeral reader belongs to this process: it is forgotten when the
    source is closed or its process is gone, and when it was the one that set capture up, capture goes with it. `pid` is
    the process that reads, where that is not the one that enters the reader.
    """

    name: str
    ephemeral: bool = False
    pid: int | None = None
