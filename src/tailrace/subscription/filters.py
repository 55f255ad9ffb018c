"""Compiled filters that are kept for whoever asks for the same."""

from tailrace.model.subscription import FilterOptions, SourceTarget, Target
from tailrace.subscription.filter import Filter
from tailrace.subscription.source_filter import SourceFilter

__all__ = ["FilterCache"]


class FilterCache:
    """Gives equal filters only once, so that each is compiled once. The least recently used goes first."""

    def __init__(self, filters_max: int) -> None:
        self._filters_max = filters_max
        self._filters: dict[Filter, Filter] = {}

    def get(self, target: Target, options: FilterOptions) -> Filter:
        """Return the filter that a target and options make. One that looks at no rows is cheap, and not kept."""
        kind = SourceFilter if isinstance(target, SourceTarget) else Filter
        made = kind(target, options)
        if not made.looks_at_rows:
            return made
        kept = self._filters.pop(made, made)
        self._filters[kept] = kept
        if len(self._filters) > self._filters_max:
            del self._filters[next(iter(self._filters))]
        return kept
