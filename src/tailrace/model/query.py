"""Prepared queries: what is kept of them."""

from msgspec import Struct

__all__ = ["PreparedQuery"]


class PreparedQuery(Struct, frozen=True):
    """One query that clients can run by its id.

    `text` is its canonical form and what the database runs; `original` is what the client sent, SQL or the JSON of a
    tree. What it depends on is not kept: that changes with the database's schema.
    """

    query_id: str
    source: str
    text: str
    original: str
    name: str
    created_time_us: int
