"""Bounds and results of SQL that a source runs for clients. A process that runs such SQL imports little more."""

from msgspec import Struct

from tailrace.model.value import Value

__all__ = ["ResultRows", "RunLimits", "StatementResult"]


class RunLimits(Struct, frozen=True):
    """Bounds of one run of a query."""

    rows_max: int
    bytes_max: int
    timeout_s: float


class ResultRows(Struct, frozen=True):
    """The result of one run, read in one transaction; `catalog` names the version of the schema that it saw."""

    columns: tuple[str, ...]
    rows: list[tuple[Value, ...]]
    catalog: str


class StatementResult(Struct, frozen=True):
    """What one statement gave: rows where it gives such, and how many rows it inserted, updated or deleted."""

    columns: tuple[str, ...]
    rows: list[tuple[Value, ...]]
    changes: int
