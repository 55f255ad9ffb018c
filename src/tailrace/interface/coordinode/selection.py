"""Which commits a stream wants. Pure."""

from msgspec import Struct

__all__ = ["ANY_TYPE", "CommitSelection"]

ANY_TYPE = ""
"""Among the edge types that a commit touches: it may have touched edges of any type."""


class CommitSelection(Struct, frozen=True):
    """The filters of a stream, ANDed. A commit is wanted whole or not at all."""

    edge_types: frozenset[str] = frozenset()
    """Commits that touch an adjacency or edge-property key of one of these types; empty for all commits."""

    migration: bool | None = None
    """Commits that move data, or those that do not; None for both."""

    restricted: bool = False
    """Some changes may be hidden from the caller, and then perhaps all of a commit."""

    @property
    def everything(self) -> bool:
        """Tell whether every commit is wanted."""
        return not self.edge_types and self.migration is None and not self.restricted

    def admits(self, *, migration: bool) -> bool:
        """Tell whether a commit with or without the mark for moved data may be wanted."""
        return self.migration is None or self.migration == migration

    def touches(self, types: frozenset[str]) -> bool:
        """Tell whether a commit with keys of these edge types is wanted as far as types go."""
        return not self.edge_types or ANY_TYPE in types or not self.edge_types.isdisjoint(types)
