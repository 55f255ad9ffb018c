"""One shard as change streams see it."""

from collections.abc import Mapping

from msgspec import Struct

from tailrace.interface.coordinode.commit_log import CommitLog
from tailrace.interface.coordinode.edge import EdgeTable
from tailrace.interface.coordinode.terms import Terms

__all__ = ["StreamShard"]


class StreamShard(Struct, frozen=True):
    """A shard: its number, the source that it holds the log of, its terms, and which of its tables hold edges."""

    number: int
    source: str
    log: CommitLog
    terms: Terms
    edges: Mapping[str, EdgeTable] = {}
