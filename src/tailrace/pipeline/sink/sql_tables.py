"""What the tables of all SQL databases have in common: how they are made and read, and how batches are noted."""

# ruff: noqa: S608 - names are quoted, values are given apart

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, ClassVar

import pyarrow as pa

from tailrace.model.errors import SinkError, SinkUnavailableError
from tailrace.pipeline.sink.base import SinkProgress
from tailrace.pipeline.sink.progress import decode_columns, encode_columns
from tailrace.pipeline.sink.sql import BATCHES, BATCHES_KEPT

__all__ = ["SqlTables"]

_ROWS_AT_ONCE_MAX = 20_000
"""How many rows are read at once."""


class SqlTables(ABC):
    """The part of `SqlDatabase` that takes no more of a database than its names, its types and a way to run statements.

    Each database adds the rest: how it connects, what it tells about its tables, and how rows get into them.
    """

    failures: ClassVar[type[Exception]]
    """What the driver raises."""

    duplicate: ClassVar[type[Exception]]
    """What the driver raises where a key is there already."""

    mark: ClassVar[str]
    """What stands for a value in a statement."""

    has_arrays: ClassVar[bool] = False
    """Whether columns can be lists."""

    def canonical(self, table: str) -> str:
        """Return the name of a table, the same for names that the database does not tell apart."""
        return self._named(table)

    def last_batch(self, pipeline: str) -> SinkProgress | None:
        """Return the last batch of a pipeline."""
        with self._errors():
            found = self._run(
                f"SELECT number, offsets, highest FROM {self._named(BATCHES)} WHERE pipeline = {self.mark}"
                " ORDER BY number DESC LIMIT 1",
                [pipeline],
            )
        return decode_columns(*found[0]) if found else None

    def note_batch(self, pipeline: str, progress: SinkProgress, changes: int) -> None:
        """Note a batch; who notes the same one waits for our transaction to end, and has it refused then.

        One that is older than the last is refused, too: numbers may have been left out.
        """
        batches, mark = self._named(BATCHES), self.mark
        noted = [pipeline, *encode_columns(progress), changes]
        old = progress.number - BATCHES_KEPT
        with self._errors():
            try:
                self._run(
                    f"INSERT INTO {batches} (pipeline, number, offsets, highest, changes)"
                    f" VALUES ({', '.join([mark] * len(noted))})",
                    noted,
                )
            except self.duplicate:
                raise SinkUnavailableError(f"another writer has applied batch {progress.number}") from None
            ((newest,),) = self._run(f"SELECT max(number) FROM {batches} WHERE pipeline = {mark}", [pipeline])
            if newest > progress.number:
                raise SinkUnavailableError(f"another writer has applied batch {newest}")
            if old >= 0:
                self._run(f"DELETE FROM {batches} WHERE pipeline = {mark} AND number <= {mark}", [pipeline, old])

    def create(self, table: str, columns: pa.Schema, key: Sequence[str]) -> None:
        """Make a table."""
        keys = pa.schema([columns.field(name) for name in key])
        parts = [f"{self._quoted(field.name)} {self._declared(field, keys)}" for field in columns]
        parts += [f"PRIMARY KEY ({self._listed(key)})"] if key else []
        with self._errors():
            self._run(f"CREATE TABLE {self._named(table)} ({', '.join(parts)}){self._suffix}")

    def add_columns(self, table: str, columns: Sequence[pa.Field]) -> None:
        """Add columns."""
        with self._errors():
            for field in columns:
                declared = self._declared(field, pa.schema([]))
                self._run(f"ALTER TABLE {self._named(table)} ADD COLUMN {self._quoted(field.name)} {declared}")

    def read(self, table: str, columns: pa.Schema, *, open_versions: bool) -> Iterator[pa.RecordBatch]:
        """Return the rows of a table, as of one moment."""
        listed = ", ".join(map(self._selected, columns))
        where = " WHERE valid_to_offset IS NULL" if open_versions else ""
        with self._errors(), self._reading(f"SELECT {listed} FROM {self._named(table)}{where}") as cursor:
            while rows := cursor.fetchmany(_ROWS_AT_ONCE_MAX):
                taken = zip(columns, zip(*rows, strict=True), strict=True)
                arrays = [self._column(values, field.type) for field, values in taken]
                yield pa.record_batch(arrays, names=columns.names)

    @abstractmethod
    def _run(self, statement: str, values: Sequence[Any] | None = None) -> Sequence[Any]:
        """Run a statement and return its rows, if it has any."""

    @abstractmethod
    def _reading(self, query: str) -> AbstractContextManager[Any]:
        """Run a query, and give a cursor that does not fetch all of its rows at once."""

    @abstractmethod
    def _failure(self, error: Any) -> SinkError:
        """Return what an error of the driver means. Its own words may hold values and are not repeated."""

    @abstractmethod
    def _quoted(self, name: str) -> str:
        """Return a name as statements have it.

        Raises:
            SinkRefusedError: The database has no such names.
        """

    @abstractmethod
    def _declared(self, field: pa.Field, key: pa.Schema) -> str:
        """Return the type of a column, which may be one of those of the primary key."""

    def _named(self, table: str) -> str:
        """Return the name of a table as statements have it."""
        return self._quoted(table)

    def _listed(self, names: Sequence[str]) -> str:
        """Return the names of columns as statements have them."""
        return ", ".join(map(self._quoted, names))

    def _selected(self, field: pa.Field) -> str:
        """Return what a query names to read a column."""
        return self._quoted(field.name)

    def _column(self, values: Sequence[Any], type_: pa.DataType) -> Any:
        """Return a column of what the driver gave; a type that is none of ours is read as text."""
        if pa.types.is_null(type_):
            return pa.array([None if value is None else str(value) for value in values], pa.string())
        if pa.types.is_boolean(type_):
            return pa.array([None if value is None else bool(value) for value in values], type_)
        return pa.array(values, type_)

    def _table(self, found: Sequence[Any], columns: pa.Schema) -> pa.Table:
        """Return rows that the driver gave as a table."""
        cells = zip(*found, strict=True) if found else [()] * len(columns)
        arrays = [self._column(values, field.type) for values, field in zip(cells, columns, strict=True)]
        return pa.table(arrays, names=columns.names)

    @property
    def _suffix(self) -> str:
        """What a statement that makes a table ends with."""
        return ""

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Raise what the driver says as an error of the sink."""
        try:
            yield
        except self.failures as error:
            raise self._failure(error) from None
