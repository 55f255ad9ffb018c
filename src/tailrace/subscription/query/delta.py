"""The difference between two results of one query: rows added and removed. Pure."""

from collections import Counter
from collections.abc import Hashable, Sequence

from msgspec import Struct

from tailrace.model.value import Value

__all__ = ["Delta", "Row", "difference"]

Row = tuple[Value, ...]
"""One row of a result, values in the order of its columns."""


class Delta(Struct, frozen=True):
    """Rows of the new result that the old one lacks, in the new order, and the reverse in the old order.

    A row that occurs several times counts as often. `reordered` tells that the rows common to both come in another
    order.
    """

    added: tuple[Row, ...]
    removed: tuple[Row, ...]
    reordered: bool


def difference(old: Sequence[Row], new: Sequence[Row], *, rows_max: int) -> Delta | None:
    """Return how the results differ, or None if more than `rows_max` rows do: then the new result says it shorter."""
    old_keys = [_key(row) for row in old]
    new_keys = [_key(row) for row in new]
    surplus = Counter(new_keys)
    surplus.subtract(old_keys)
    added = _pick(new_keys, {key: count for key, count in surplus.items() if count > 0})
    removed = _pick(old_keys, {key: -count for key, count in surplus.items() if count < 0})
    if len(added) + len(removed) > rows_max:
        return None
    gone, came = set(removed), set(added)
    stayed = [key for place, key in enumerate(old_keys) if place not in gone]
    stay = [key for place, key in enumerate(new_keys) if place not in came]
    return Delta(tuple(new[place] for place in added), tuple(old[place] for place in removed), stayed != stay)


def _pick(keys: Sequence[Hashable], counts: dict[Hashable, int]) -> list[int]:
    """Return the places of the last this many occurrences of each key, in order: the earlier ones stay."""
    places = []
    for place in range(len(keys) - 1, -1, -1):
        key = keys[place]
        if counts.get(key, 0) > 0:
            counts[key] -= 1
            places.append(place)
    return places[::-1]


def _key(row: Row) -> Hashable:
    """Return what rows are compared by: values of different types differ, a number equals only itself."""
    return tuple((type(value), value.hex() if isinstance(value, float) else value) for value in row)
