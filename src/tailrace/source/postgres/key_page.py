"""Rows of a PostgreSQL table by intervals of keys: counted, cut into runs, and read page by page.

Keys are compared as the index of the key has them: row by row comparison in the types and collations of its columns.
"""
# ruff: noqa: S608 (identifiers and literals are quoted)

import contextlib
import threading
from collections.abc import Iterator, Sequence

import msgspec
import pyarrow as pa

from tailrace.model.commit import CommitId
from tailrace.model.errors import InvalidValueError, SourceStateError, SourceUnavailableError
from tailrace.model.image import decode_image
from tailrace.model.key_interval import KeyInterval
from tailrace.model.table import Kind, TableName, TableSchema
from tailrace.model.value import from_natural
from tailrace.source.base import Barrier, SnapshotRows
from tailrace.source.postgres.commit_watch import Look
from tailrace.source.postgres.read_connection import ReadableTable, ReadConnection, cells_of
from tailrace.source.postgres.value_text import literal_of

__all__ = ["PostgresPage", "count_rows", "cut_keys", "find_last_key", "read_page"]

_BYTES_MAX = 16 << 20
"""A page ends about where it has this many bytes."""

_ARROW = {
    Kind.BOOL: pa.bool_(),
    Kind.I64: pa.int64(),
    Kind.F64: pa.float64(),
    Kind.STR: pa.string(),
    Kind.BYTES: pa.binary(),
}
"""Kinds that have an Arrow type of their own, as pages have them."""


class PostgresPage:
    """Rows of one page; satisfies `tailrace.source.base.TablePage`."""

    def __init__(self, found: Look, table: ReadableTable, lines: list[bytes], *, end: bool) -> None:
        self.schema: TableSchema = table.schema
        self.end = end
        self._look = found
        self._shape = table.shape
        self._lines = lines
        count = self._shape.count
        self.last = self._shape.key(cells_of(lines[-1], count)).decode() if lines else None

    def rows(self) -> SnapshotRows:
        """Return the rows."""
        count, key, image = self._shape.count, self._shape.key, self._shape.image
        cells = [cells_of(line, count) for line in self._lines]
        return SnapshotRows([key(row) for row in cells], [image(row) for row in cells])

    def columns(self) -> pa.RecordBatch | None:
        """Return the rows as columns; None where a kind has no Arrow type of its own."""
        if any(column.kind not in _ARROW for column in self.schema.columns):
            return None
        images = [decode_image(image, self.schema) for image in self.rows().images]
        try:
            arrays = [pa.array([row[one.name] for row in images], _ARROW[one.kind]) for one in self.schema.columns]
        except (pa.ArrowInvalid, pa.ArrowTypeError):  # bytes in a text column of a database without an encoding
            return None
        return pa.RecordBatch.from_arrays(arrays, names=[column.name for column in self.schema.columns])

    @property
    def barrier(self) -> Barrier:
        """Return what was committed when the rows were read."""
        return self._look.barrier

    def contains(self, commit: CommitId) -> bool:
        """Tell whether a commit is in the rows already."""
        return self._look.contains(commit)

    def complete(self, commit: CommitId | None) -> bool:
        """Return that the rows have nothing of later commits: a transaction that does is not read from."""
        return True


def count_rows(connection: ReadConnection, table: TableName) -> int:
    """Return how many rows a table has."""
    plan = connection.plan(table)
    return int(next(connection.copied(f"SELECT count(*) FROM {plan.path}{_where(plan)}")))


def find_last_key(connection: ReadConnection, table: TableName) -> str | None:
    """Return the greatest key of a table; see `QuerySource.last_key`."""
    plan = connection.plan(table)
    plan.require_key()
    falling = ", ".join(f"{name} DESC" for name in plan.key)
    query = f"SELECT {', '.join(plan.key)} FROM {plan.path}{_where(plan)} ORDER BY {falling} LIMIT 1"
    found = list(connection.copied(query))
    return plan.key_text(cells_of(found[0], len(plan.key))) if found else None


def cut_keys(connection: ReadConnection, table: TableName, within: KeyInterval, rows: int, count: int) -> list[str]:
    """Return the last key of each run of this many rows; see `QuerySource.cut`. Only keys are walked over."""
    plan = connection.plan(table)
    plan.require_key()
    keys = ", ".join(plan.key)
    numbered = f"SELECT {keys}, row_number() OVER (ORDER BY {keys}) AS n FROM {plan.path}{_where(plan, within)}"
    query = f"SELECT {keys} FROM ({numbered}) t WHERE n % {int(rows)} = 0 ORDER BY {keys} LIMIT {int(count)}"
    with _bounded(within, table):
        return [plan.key_text(cells_of(line, len(plan.key))) for line in connection.copied(query)]


def read_page(
    connection: ReadConnection,
    table: TableName,
    within: KeyInterval,
    rows_max: int,
    deadline_s: float,
    stopping: threading.Event,
) -> PostgresPage:
    """Return the first rows of an interval; see `QuerySource.page`."""
    with connection.reading(table, deadline_s, stopping) as (found, plan), _bounded(within, table):
        plan.require_key()
        query = (
            f"SELECT {', '.join(plan.columns)} FROM {plan.path}{_where(plan, within)} "
            f"ORDER BY {', '.join(plan.key)} LIMIT {int(rows_max)}"
        )
        lines: list[bytes] = []
        size_bytes = 0
        with contextlib.closing(connection.copied(query)) as copied:
            for line in copied:
                lines.append(line)
                size_bytes += len(line)
                if size_bytes >= _BYTES_MAX:
                    break
        end = len(lines) < rows_max and size_bytes < _BYTES_MAX
        return PostgresPage(found, plan, lines, end=end)


@contextlib.contextmanager
def _bounded(within: KeyInterval, table: TableName) -> Iterator[None]:
    """Raise what the server says of a bound as what it is: a value that is no key."""
    try:
        yield
    except (SourceStateError, SourceUnavailableError) as error:
        state = getattr(error.__cause__, "sqlstate", None) or ""
        if (within.after is None and within.through is None) or state[:2] not in {"22", "23"}:
            raise
        raise InvalidValueError(f"not a key of table {table.wire!r}: {error}") from error


def _where(plan: ReadableTable, within: KeyInterval | None = None) -> str:
    """Return the condition of the rows that are captured, in an interval of keys."""
    conditions = [f"({plan.where})"] if plan.where else []
    if within is not None and within.after is not None:
        conditions.append(f"({', '.join(plan.key)}) > ({_literals(plan, within.after)})")
    if within is not None and within.through is not None:
        conditions.append(f"({', '.join(plan.key)}) <= ({_literals(plan, within.through)})")
    return f" WHERE {' AND '.join(conditions)}" if conditions else ""


def _literals(plan: ReadableTable, key: str) -> str:
    """Return the values of a key as SQL.

    Raises:
        InvalidValueError: It is no key of the table.
    """
    columns = plan.schema.key_columns
    try:
        naturals: Sequence[object] = msgspec.json.decode(key, type=list[object])
        if len(naturals) != len(columns) or None in naturals:
            raise InvalidValueError("a value for each column")
        values = [from_natural(natural, column) for natural, column in zip(naturals, columns, strict=True)]
        texts = [literal_of(value, column) for value, column in zip(values, columns, strict=True)]
    except (msgspec.DecodeError, ValueError, ArithmeticError, RecursionError, InvalidValueError) as error:
        raise InvalidValueError(f"not a key of table {plan.schema.table.wire!r}: {key[:64]!r}") from error
    return ", ".join(f"CAST({text} AS {type_})" for text, type_ in zip(texts, plan.key_types, strict=True))
