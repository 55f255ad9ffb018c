"""Queries of a scripted database: `TABLE name`, the shortest query of SQL, and nothing else.

It is enough to follow a query through the server: what it depends on, which changes matter to it, and its result.
"""

import hashlib
from collections.abc import Sequence

from msgspec import Struct

from tailrace.model.errors import InvalidRequestError
from tailrace.model.image import decode_image
from tailrace.model.op import Op
from tailrace.model.value import Value
from tailrace.source.result import ResultRows, RunLimits
from tailrace.sql.dialect import WithoutSql
from tailrace.sql.query import Catalog, Dependencies, Judge, RowImage, Statement, Stored
from tailrace.subscription.table import readings
from tailrace.testing.reads import ScriptedReads

__all__ = ["TableDialect", "TableQueries"]

_TABLE = "TABLE "


class _Statement(Struct, frozen=True):
    text: str
    arguments: int = 0
    ordered: bool = False

    @property
    def query_id(self) -> str:
        return "q_" + hashlib.sha256(self.text.encode()).hexdigest()[:12]


class _Dependencies(Struct, frozen=True):
    tables: tuple[str, ...]
    catalog_version: str
    volatile: str = ""


class _Judge(Struct, frozen=True):
    tables: tuple[str, ...]

    def concerns(self, table: str) -> bool:
        return table in self.tables

    def columns(self, table: str) -> frozenset[str]:
        return frozenset()

    def relevant(self, table: str, op: Op, before: RowImage | None, after: RowImage | None) -> bool:
        return True


class TableDialect(WithoutSql):
    """Knows the query `TABLE name`, the name as it is on the wires; refuses all other SQL."""

    def parse_query(self, sql: str) -> Statement:
        """Return the statement."""
        if not sql.startswith(_TABLE):
            raise InvalidRequestError("the only query is TABLE name")
        return _Statement(sql)

    def analyse(self, statement: Statement, catalog: Catalog) -> Dependencies:
        """Return that it depends on its table."""
        return _Dependencies((statement.text.removeprefix(_TABLE),), catalog.version)

    def independent(self, catalog: Catalog) -> Dependencies:
        """Return that nothing depends on nothing."""
        return _Dependencies((), catalog.version)

    def judge(self, dependencies: Dependencies, arguments: Sequence[Stored]) -> Judge:
        """Return what takes every change of the table for relevant."""
        return _Judge(dependencies.tables)

    def bind(self, arguments: Sequence[Value], expected: int) -> tuple[Stored, ...]:
        """Return no arguments."""
        if arguments:
            raise InvalidRequestError("TABLE name takes no arguments")
        return ()


class TableQueries(ScriptedReads):
    """The reading side of a database in memory with queries; see `TableDialect`."""

    @property
    def dialect(self) -> TableDialect:
        """Return the one with one query."""
        return TableDialect("scripted")

    async def run(self, sql: str, arguments: Sequence[Stored], limits: RunLimits) -> ResultRows:
        """Return all rows of the table."""
        for table in readings(self._name, sql.removeprefix(_TABLE)):
            found = self._database.read(table.name, table.schema)
            if found is not None:
                images = [decode_image(image, found.schema) for _, image in found.rows]
                columns = tuple(column.name for column in found.schema.columns)
                cells = [tuple(image.get(name) for name in columns) for image in images]
                return ResultRows(columns, cells, found.catalog)
        raise InvalidRequestError("there is no such table")
