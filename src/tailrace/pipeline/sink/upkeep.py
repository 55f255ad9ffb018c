"""What is done now and then for the tables of a lake: small files put together, what nobody reads any more removed."""

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from tailrace.model.table import TableSchema

__all__ = ["TableLayout", "TableUpkeep", "Upkeep", "UpkeepOptions", "columns_of"]


class UpkeepOptions(Struct, frozen=True):
    """How tables are maintained."""

    file_bytes: int = 128_000_000
    """Size that files are to have, about."""

    retention_s: float = 7 * 86_400.0
    """Files and snapshots that a table has had no use for since are removed: readers of older states need them."""

    z_order: tuple[str, ...] = ()
    """Columns, as `TABLE.COLUMN`, by which the rows of a table are put in order."""


class TableUpkeep(Struct, frozen=True):
    """What was done for a table."""

    table: str
    files_before: int = 0
    files: int = 0
    removed: int = 0
    """Files, or snapshots, that were removed."""

    skipped: str = ""
    """Why nothing was done; empty where it was."""


Upkeep = Callable[[Sequence[TableSchema], UpkeepOptions], list[TableUpkeep]]
"""Maintains tables; one that others commit to all the while is skipped."""


class TableLayout(Struct, frozen=True):
    """How tables are laid out when they are made."""

    partition_by: tuple[str, ...] = ()
    """Columns, as `TABLE.COLUMN`."""

    properties: Mapping[str, str] = {}

    def columns(self, table: str) -> list[str]:
        """Return the columns by which a table is divided."""
        return columns_of(self.partition_by, table)

    def is_plain(self, table: str) -> bool:
        """Tell whether a table is laid out as tables are by default."""
        return not self.columns(table) and not self.properties


def columns_of(names: Sequence[str], table: str) -> list[str]:
    """Return the columns of a table among names like `TABLE.COLUMN`."""
    return [name.removeprefix(f"{table}.") for name in names if name.startswith(f"{table}.")]
