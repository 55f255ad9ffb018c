"""Rows of an SQLite table by intervals of keys: counted, cut into runs, and read page by page.

A page is read in a transaction of its own, which is short. The row number is the key of tables that have no other, and
of those with an INTEGER PRIMARY KEY; all others are read in the order of their primary key's index.

A primary key may be null in part, and then several rows may have the same. Null is before all else, as in an index; and
rows with the same key are in the same run and on the same page, as no interval ends between them.
"""
# ruff: noqa: S608 (identifiers are quoted)

import itertools
import math
import threading
from collections.abc import Sequence
from typing import Any

import apsw
import msgspec
import pyarrow as pa
from msgspec import Struct

from tailrace.model.commit import CommitId
from tailrace.model.errors import (
    InvalidValueError,
    ResultTooLargeError,
    UnknownTableError,
)
from tailrace.model.key_interval import KeyInterval
from tailrace.model.table import ANY_COLUMN, Kind, TableName, TableSchema
from tailrace.model.value import from_natural, to_natural
from tailrace.source.base import Barrier, Reader, SnapshotRows
from tailrace.source.sqlite.barrier import Look, reached
from tailrace.source.sqlite.change_table import quote
from tailrace.source.sqlite.registry import load_versions
from tailrace.source.sqlite.row_encoder import RowEncoder
from tailrace.source.sqlite.schema import SqliteTable, read_schema
from tailrace.source.sqlite.snapshot import begin_fitting
from tailrace.source.sqlite.trigger import row_cells
from tailrace.sql.query import Stored

__all__ = ["SqlitePage", "count_rows", "cut_keys", "find_last_key", "read_page"]

_BYTES_MAX = 16 << 20
"""A page ends about where it has this many bytes."""

_CELL_BYTES = 8
_ROWS_AT_ONCE = 16
"""Rows between two looks at how full a page is. By this many it may be larger, however large they are."""

_LONG = frozenset({str, bytes})

_TYPES: dict[Kind, tuple[type, pa.DataType]] = {
    Kind.I64: (int, pa.int64()),
    Kind.F64: (float, pa.float64()),
    Kind.STR: (str, pa.string()),
    Kind.BYTES: (bytes, pa.binary()),
    Kind.ANY: (str, pa.string()),
}
"""What SQLite stores for each kind that its columns have, and its type in Arrow."""

_INTEGER_MIN, _INTEGER_MAX = -(2**63), 2**63 - 1


class SqlitePage:
    """Rows of one page; satisfies `tailrace.source.base.TablePage`."""

    def __init__(self, found: Look, schema: TableSchema, encoder: RowEncoder, cells: list[Any], *, end: bool) -> None:
        self.schema = schema
        self.last = encoder.key(cells[-1]).decode() if cells else None
        self.end = end
        self._look = found
        self._encoder = encoder
        self._cells = cells

    def rows(self) -> SnapshotRows:
        """Return the rows."""
        key, image = self._encoder.key, self._encoder.image
        return SnapshotRows([key(row) for row in self._cells], [image(row) for row in self._cells])

    def columns(self) -> pa.RecordBatch | None:
        """Return the rows as columns; None where some value is not of its column's kind."""
        columns = [(column.name, column.kind) for column in self.schema.columns]
        if self._encoder.version.hidden_rowid:
            columns.insert(0, (self.schema.key_columns[0].name, Kind.I64))
        if len({name for name, _ in columns}) < len(columns):
            return None
        values = zip(*self._cells, strict=True) if self._cells else [()] * len(columns)
        arrays = []
        for (_, kind), cells in zip(columns, values, strict=True):
            array = _column(cells, kind)
            if array is None:
                return None
            arrays.append(array)
        return pa.RecordBatch.from_arrays(arrays, names=[name for name, _ in columns])

    @property
    def barrier(self) -> Barrier:
        """Return what was committed when the rows were read."""
        return self._look.barrier

    def contains(self, commit: CommitId) -> bool:
        """Tell whether a commit is in the rows already."""
        return self._look.contains(commit)

    def complete(self, commit: CommitId | None) -> bool:
        """Tell whether the rows have nothing of the commits after this one."""
        return reached(self._look.barrier, commit.position if commit else None)


def count_rows(connection: apsw.Connection, table: TableName) -> int:
    """Return how many rows a table has."""
    listed = _listed(connection, table)
    return int(connection.execute(f"SELECT count(*) FROM {quote(listed.name)}").get)


def find_last_key(connection: apsw.Connection, table: TableName) -> str | None:
    """Return the greatest key of a table; see `QuerySource.last_key`. It is looked up at the end of the index."""
    listed = _listed(connection, table)
    terms = _terms(listed)
    falling = ", ".join(f"{term} DESC" for term in terms)
    chosen = f"SELECT {', '.join(terms)} FROM {quote(listed.name)} ORDER BY {falling} LIMIT 1"
    found = connection.execute(chosen).fetchall()
    return _key_text(listed, found[0]) if found else None


def cut_keys(connection: apsw.Connection, table: TableName, within: KeyInterval, rows: int, count: int) -> list[str]:
    """Return the last key of each run of this many rows; see `QuerySource.cut`. Only keys are walked over."""
    listed = _listed(connection, table)
    terms = _terms(listed)
    after, through = _bound(listed, within.after), _bound(listed, within.through)
    cuts: list[str] = []
    while len(cuts) < count:
        chosen = _choose(listed, terms, after, through)
        found = connection.execute(f"{chosen.text} LIMIT 1 OFFSET {rows - 1}", chosen.arguments).fetchall()
        if not found or (chosen.open and found[0][-1]):
            break
        after = tuple(found[0][: len(terms)])
        cuts.append(_key_text(listed, after))
    return cuts


def read_page(
    connection: apsw.Connection,
    reader: Reader,
    table: TableName,
    within: KeyInterval,
    rows_max: int,
    deadline_s: float,
    cancelled: threading.Event,
) -> SqlitePage:
    """Return the first rows of an interval; see `QuerySource.page`."""
    try:
        found = begin_fitting(connection, reader, deadline_s, cancelled)
        version = next((one for one in load_versions(connection, live=True).values() if one.name == table.name), None)
        listed = _listed(connection, table)
        if version is None:
            raise UnknownTableError(table.source, table.wire)
        after, through = _bound(listed, within.after), _bound(listed, within.through)
        columns = row_cells(listed, quote(listed.name))
        cells, size_bytes, whole = _read(connection, _choose(listed, columns, after, through), rows_max)
        end = whole and len(cells) < rows_max
        last = [cells[-1][place] for place in version.key_cells] if cells else []
        if not end and None in last:
            chosen = _choose(listed, columns, after, last)
            cells, _, whole = _read(connection, chosen, None, size_bytes + _BYTES_MAX)
            if not whole:
                raise ResultTooLargeError(
                    f"table {table.name!r} has too many rows with the same key, part of which is NULL: "
                    "give them distinct keys"
                )
        return SqlitePage(found, version.schema(table.source, version.number), RowEncoder(version), cells, end=end)
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


class _Chosen(Struct, frozen=True):
    """A statement that selects rows of an interval in order. Of an open one, the last cell tells rows beyond it."""

    text: str
    arguments: list[Any]
    open: bool


def _read(
    connection: apsw.Connection, chosen: _Chosen, rows_max: int | None, bytes_max: int = _BYTES_MAX
) -> tuple[list[Any], int, bool]:
    """Return rows until there are no more, or the page is full; their bytes; and whether they ended before it was."""
    limit = "" if rows_max is None else f" LIMIT {rows_max}"
    cursor = connection.execute(chosen.text + limit, chosen.arguments)
    cells: list[Any] = []
    size_bytes = 0
    while some := list(itertools.islice(cursor, _ROWS_AT_ONCE)):
        read = len(some)
        if chosen.open:
            some = [row[:-1] for row in some if not row[-1]]
        cells += some
        size_bytes += sum(len(cell) for row in some for cell in row if type(cell) in _LONG)
        size_bytes += _CELL_BYTES * sum(map(len, some))
        if len(some) < read or size_bytes >= bytes_max:
            cursor.close()
            return cells, size_bytes, len(some) < read
    return cells, size_bytes, True


def _column(cells: Sequence[Any], kind: Kind) -> pa.Array | None:
    """Return the values of a column in the Arrow type of its kind; None where they are not all of that kind."""
    found = set(map(type, cells)) - {type(None)}
    if kind is Kind.ANY and found == {int}:
        return pa.array(cells, pa.int64()).cast(pa.string())
    stored, type_ = _TYPES[kind]
    return pa.array(cells, type_) if found <= {stored} else None


def _listed(connection: apsw.Connection, table: TableName) -> SqliteTable:
    listed = None if table.schema else read_schema(connection).tables.get(table.name)
    if listed is None:  # there is no other schema than the default one
        raise UnknownTableError(table.source, table.wire)
    return listed


def _terms(table: SqliteTable) -> list[str]:
    """Return what rows are ordered by."""
    return [quote(name) for name in table.key] if table.key else [f"{quote(table.name)}.{table.rowid}"]


def _choose(
    table: SqliteTable, columns: Sequence[str], after: Sequence[Any] | None, through: Sequence[Any] | None
) -> _Chosen:
    """Return how rows of an interval are selected. Where keys may be null it is open, as `<=` would leave those out."""
    terms = _terms(table)
    conditions, arguments = [], []
    if after is not None:
        known = list(itertools.takewhile(lambda value: value is not None, after))
        if 0 < len(known) < len(terms):
            conditions.append(f"({', '.join(terms[: len(known)])}) >= {_places(known)}")
            arguments += known
        greater, bound = _greater(terms, after)
        conditions.append(greater)
        arguments += bound
    nullable = {column.name for column in table.model_columns if column.nullable}
    is_open = through is not None and (None in through or not nullable.isdisjoint(table.key))
    if through is not None and is_open:
        beyond, bound = _greater(terms, through)
        columns = [*columns, f"ifnull({beyond}, 0)"]
        arguments = [*bound, *arguments]
    elif through is not None:
        conditions.append(f"({', '.join(terms)}) <= {_places(through)}")
        arguments += through
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    text = f"SELECT {', '.join(columns)} FROM {quote(table.name)}{where} ORDER BY {', '.join(terms)}"
    return _Chosen(text, arguments, is_open)


def _greater(terms: Sequence[str], key: Sequence[Any]) -> tuple[str, list[Any]]:
    """Return the condition that a row's key is after another one, null being before all else, and what it binds.

    It is simple where it can be: then the database looks the key up instead of walking over those before it.
    """
    if None not in key:
        return f"({', '.join(terms)}) > {_places(key)}", list(key)
    condition = "0"
    arguments: list[Any] = []
    for term, value in reversed(list(zip(terms, key, strict=True))):
        if value is None:
            condition = f"({term} IS NOT NULL OR ({term} IS NULL AND {condition}))"
        else:
            condition = f"({term} > ? OR ({term} = ? AND {condition}))"
            arguments = [value, value, *arguments]
    return f"ifnull({condition}, 0)", arguments


def _places(key: Sequence[Any]) -> str:
    return f"({', '.join('?' * len(key))})"


def _key_text(table: SqliteTable, values: Sequence[Any]) -> str:
    """Return a key in its natural JSON form, as the log has it."""
    columns = {column.name: column for column in table.model_columns}
    keys = [columns[name] for name in table.key] or [ANY_COLUMN]
    naturals = [to_natural(value, column) for value, column in zip(values, keys, strict=True)]
    return msgspec.json.encode(naturals).decode()


def _bound(table: SqliteTable, key: str | None) -> tuple[Any, ...] | None:
    """Return the values of a key as SQLite compares them.

    Raises:
        InvalidValueError: It is no key of the table.
    """
    if key is None:
        return None
    columns = {column.name: column for column in table.model_columns}
    try:
        naturals = msgspec.json.decode(key, type=list[Any])
        if not table.key:
            (number,) = naturals
            if type(number) is not int:
                raise InvalidValueError("a row number")
            return (_stored(number),)
        pairs = zip(naturals, table.key, strict=True)
        return tuple(_stored(from_natural(natural, columns[name])) for natural, name in pairs)
    except (msgspec.DecodeError, ValueError, RecursionError, InvalidValueError) as error:
        raise InvalidValueError(f"not a key of table {table.name!r}: {key[:64]!r}") from error


def _stored(value: Any) -> Stored:
    """Return a value that SQLite may have stored; it has no other."""
    match value:
        case int() if not _INTEGER_MIN <= value <= _INTEGER_MAX:
            raise InvalidValueError("an integer")
        case float() if math.isnan(value):
            raise InvalidValueError("a number")
        case None | int() | float() | str() | bytes():
            return value
        case _:
            raise InvalidValueError("a value")
