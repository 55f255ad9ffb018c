"""Filter by one exact key in its raw form. Pure."""

from tailrace.model.raw_key import key_of_raw
from tailrace.model.table import TableSchema
from tailrace.subscription.key_filter import ExactKey

__all__ = ["RawKey"]


class RawKey(ExactKey):
    """Passes the changes of the one key whose raw form this is, in whatever table; see `tailrace.model.raw_key`."""

    __slots__ = ()

    def __init__(self, raw: bytes, schema: TableSchema) -> None:
        self.key = key_of_raw(raw, schema)
