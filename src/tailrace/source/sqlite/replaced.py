"""Finds the rows that REPLACE removed without firing a trigger. Pure.

Before a row is written, a candidate is noted for each other row that agrees with it in the primary key or a unique
index. If then the row *is* written, uniqueness tells that the other one is no longer there: it was replaced, unless a
change of its own was noted in between. If it is not written (OR IGNORE, UPSERT), the candidate stays an orphan and is
forgotten at the end of the commit.
"""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from tailrace.source.sqlite.change_table import ChangeCode
from tailrace.source.sqlite.table_version import TableVersion

__all__ = ["Candidates"]

Cells = Sequence[Any]


class Candidate(Struct, frozen=True):
    """A row that stood in the way of another one."""

    code: ChangeCode
    old: Cells
    new: Cells


class Candidates:
    """The candidates of the commit that is being decoded."""

    def __init__(self) -> None:
        self._rows: dict[tuple[int, bytes], tuple[TableVersion, Candidate]] = {}

    def __bool__(self) -> bool:
        return bool(self._rows)

    def clear(self) -> None:
        """Forget all: the commit is over."""
        self._rows.clear()

    def note(self, version: TableVersion, key: bytes, code: ChangeCode, old: Cells, new: Cells) -> None:
        """Remember a candidate by the key of the row that stands in the way."""
        self._rows[version.version, key] = (version, Candidate(code, old, new))

    def deleted(self, version: TableVersion, key: bytes) -> None:
        """Take notice that a row was deleted and a trigger said so."""
        self._rows.pop((version.version, key), None)

    def updated(self, version: TableVersion, key: bytes, old: Cells, new_key: bytes, new: Cells) -> None:
        """Take notice that a row was updated: it is still in the way if it did not move out of it."""
        entry = self._rows.pop((version.version, key), None)
        if entry is None:
            return
        decisive = version.unique_cells if version.unique_cells is not None else range(version.cells)
        if all(old[cell] == new[cell] for cell in decisive):
            candidate = entry[1]
            self._rows[version.version, new_key] = (version, Candidate(candidate.code, new, candidate.new))

    def replaced(self, version: TableVersion, code: ChangeCode, new: Cells) -> list[tuple[bytes, Cells]]:
        """Return the rows that the writing of a row has removed, by key, and forget them."""
        found = [
            (key, candidate.old)
            for (number, key), (_, candidate) in self._rows.items()
            if number == version.version and candidate.code == code and _written(version, candidate, new)
        ]
        for key, _ in found:
            del self._rows[version.version, key]
        return [(key, old) for key, old in found]


def _written(version: TableVersion, candidate: Candidate, new: Cells) -> bool:
    """Return whether the row that a candidate stood in the way of is the one that was written.

    Generated columns may depend on a row number that was not known yet; they follow from the others.
    """
    hidden = int(version.hidden_rowid)
    for cell, (planned, written) in enumerate(zip(candidate.new, new, strict=True)):
        unknown = planned is None and cell == version.rowid_cell
        generated = cell >= hidden and version.columns[cell - hidden].generated
        if planned != written and not unknown and not generated:
            return False
    return True
