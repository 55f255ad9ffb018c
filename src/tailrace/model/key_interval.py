"""Intervals of keys: what one reader of a table's rows is given at a time."""

from msgspec import Struct

__all__ = ["KeyInterval"]


class KeyInterval(Struct, frozen=True):
    """Keys of a table after one key (exclusive) through another (inclusive), in their natural JSON form.

    None is before the first key, and beyond the last one. The order is the database's own. Keys that are null in part
    may be those of several rows, which are all in the interval or none.
    """

    after: str | None = None
    through: str | None = None
