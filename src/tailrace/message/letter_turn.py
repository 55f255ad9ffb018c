"""Which letters are sent together, so that those of one key stay in order. Pure."""

from collections.abc import Sequence

from tailrace.meta.dead_letter_store import key_hash
from tailrace.model.letter import Letter

__all__ = ["first_of_each"]


def first_of_each(due: Sequence[Letter], sink: str, stuck: set[str]) -> tuple[list[Letter], list[Letter]]:
    """Return the first letter of each key, and the others; none of keys that are stuck."""
    run, later = [], []
    seen: set[str] = set()
    for letter in due:
        key = key_hash(sink, letter.change)
        if key in seen:
            later.append(letter)
        elif key not in stuck:
            run.append(letter)
            seen.add(key)
    return run, later
