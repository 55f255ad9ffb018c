"""Ranges of a table as pullers know them: numbered slices of its keys, and who reads them."""

from msgspec import Struct, structs

from tailrace.meta.ordered_key import table_prefix
from tailrace.model.number import Offset
from tailrace.model.table import TableName

__all__ = ["Epoch", "KeyRange", "PullerKey", "RangedTable", "Registration"]


class Epoch(Struct, frozen=True):
    """Which state of a range a request is about. `version` rises when the range is split."""

    conf_ver: int = 1
    version: int = 1


class RangedTable(Struct, frozen=True):
    """A table that has ranges: its number, never used again, and the columns of its key when they were made."""

    id: int
    table: TableName
    key: tuple[str, ...]

    @property
    def prefix(self) -> bytes:
        """Return the bytes that begin all of its keys."""
        return table_prefix(self.id)


class KeyRange(Struct, frozen=True):
    """The keys from `start` up to, not including, `end`, both as in `model.ordered_key`; its number stays the same.

    A split moves the end. `parent` is the range that it was split off; None where it is one of the first of its table.
    """

    id: int
    table_id: int
    start: bytes
    end: bytes
    epoch: Epoch = Epoch()
    parent: int | None = None
    born_version: int = 1
    """Its version when it was made."""

    born_end: bytes = b""
    """Its end when it was made."""

    def contains(self, key: bytes) -> bool:
        """Tell whether a key is one of the range."""
        return self.start <= key < self.end

    @property
    def born(self) -> "KeyRange":
        """Return the range as it was made."""
        epoch = Epoch(self.epoch.conf_ver, self.born_version)
        return structs.replace(self, end=self.born_end, epoch=epoch)

    def before(self, child: "KeyRange") -> "KeyRange":
        """Return the range as it was left by the split that made a child."""
        return structs.replace(self, end=child.start, epoch=Epoch(self.epoch.conf_ver, child.born_version))


PullerKey = tuple[int, str, str]
"""The range of a puller, the principal that it is of, and its name."""


class Registration(Struct, frozen=True):
    """One puller of a range, as it registered, and how far it has come.

    The log is kept for it from `log_index` on. `snapshot_version` and `snapshot_schema` tell which copy of the rows is
    under way: where it began, and the version of the table's schema; 0 for none.
    """

    range_id: int
    owner: str
    name: str
    init_version: Offset
    log_index: Offset
    snapshot_version: Offset = Offset(0)
    snapshot_schema: int = 0
    heard_time_us: int = 0

    @property
    def key(self) -> PullerKey:
        """Return what tells it from all others."""
        return self.range_id, self.owner, self.name
