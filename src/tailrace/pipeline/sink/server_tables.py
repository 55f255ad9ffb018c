"""What the tables of database servers have in common: how rows get into them."""

# ruff: noqa: S608 - names are quoted, values are given apart

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import pyarrow as pa

from tailrace.pipeline.sink.sql import ARRIVALS
from tailrace.pipeline.sink.sql_tables import SqlTables

__all__ = ["ServerTables"]


class ServerTables(SqlTables):
    """Rows arrive in a temporary table and go from there in place, by statements over all of them.

    In these statements `t` is the table and `s` the temporary one.
    """

    mark = "%s"
    join: ClassVar[str] = "JOIN"
    """How the temporary table is joined with another one, of which only the rows with those keys shall be read."""

    def insert(self, table: str, rows: pa.Table) -> None:
        """Add rows."""
        with self._errors():
            self._fill(self._named(table), rows)

    def delete(self, table: str, rows: pa.Table, key: Sequence[str]) -> None:
        """Remove rows."""
        self._put(table, rows, self._deletion(self._named(table), rows.select(key).schema))

    def upsert(self, table: str, rows: pa.Table, key: Sequence[str]) -> None:
        """Add or replace rows."""
        self._put(table, rows, self._upsertion(self._named(table), rows.column_names, rows.select(key).schema))

    def close_versions(self, table: str, closings: pa.Table, key: Sequence[str]) -> None:
        """Put an end to open versions."""
        self._put(table, closings, self._closing(self._named(table), closings.select(key).schema))

    def known(self, table: str, keys: pa.Table, key: Sequence[str]) -> pa.Table:
        """Return the last offset of each of these keys."""
        distinct = keys.group_by(list(key)).aggregate([])
        listed = ", ".join(f"t.{self._selected(field)}" for field in distinct.schema)
        with self._errors():
            self._arrive(table, distinct)
            found = self._run(
                f"SELECT {listed}, max(greatest(t.valid_from_offset, coalesce(t.valid_to_offset, 0)))"
                f" FROM {ARRIVALS} s {self.join} {self._named(table)} t ON {self._same(distinct.schema)}"
                f" GROUP BY {listed}"
            )
        return self._table(found, pa.schema([*distinct.schema, ("_known", pa.int64())]))

    def held(self, table: str, keys: pa.Table, columns: pa.Schema, *, open_versions: bool) -> pa.Table:
        """Return columns of the rows with these keys."""
        listed = ", ".join(f"t.{self._selected(field)}" for field in columns)
        where = " WHERE t.valid_to_offset IS NULL" if open_versions else ""
        with self._errors():
            self._arrive(table, keys)
            found = self._run(
                f"SELECT {listed} FROM {ARRIVALS} s {self.join} {self._named(table)} t"
                f" ON {self._same(keys.schema)}{where}"
            )
        return self._table(found, columns)

    @abstractmethod
    def _deletion(self, target: str, key: pa.Schema) -> str:
        """Return the statement that removes the rows whose keys have arrived, unless they are newer."""

    @abstractmethod
    def _upsertion(self, target: str, names: Sequence[str], key: pa.Schema) -> str:
        """Return the statement that adds the rows that have arrived, or puts them in place of those that are older."""

    @abstractmethod
    def _closing(self, target: str, key: pa.Schema) -> str:
        """Return the statement that ends the open versions of the keys that have arrived."""

    @abstractmethod
    def _empty(self, target: str, listed: str) -> Sequence[str]:
        """Return the statements that make an empty temporary table with these columns of a table."""

    @abstractmethod
    def _fill(self, target: str, rows: pa.Table) -> None:
        """Add rows to a table, which may be a temporary one."""

    def _put(self, table: str, rows: pa.Table, statement: str) -> None:
        if rows.num_rows:
            with self._errors():
                self._arrive(table, rows)
                self._run(statement)

    def _arrive(self, table: str, rows: pa.Table) -> None:
        """Put rows into the temporary table, which has the types that the table has for them."""
        for statement in self._empty(self._named(table), self._listed(rows.column_names)):
            self._run(statement)
        self._fill(ARRIVALS, rows)

    def _same(self, key: pa.Schema, one: str = "t", other: str = "s") -> str:
        """Return the condition that rows of two tables have one key."""
        return " AND ".join(f"{one}.{name} = {other}.{name}" for name in map(self._quoted, key.names))
