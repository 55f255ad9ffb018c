"""The databases that the contract suites of sources run on. A new kind of source adds one entry to `DATABASES`.

Each is made with the tables of `TABLES`, is opened through the registry of sources by its URL, and says by `Abilities`
what it promises beyond what every source does.
"""

import contextlib
from typing import ClassVar

import apsw
from msgspec import Struct, structs

import postgres_servers
from tailrace.clock import SystemClock
from tailrace.metrics import Metrics
from tailrace.model.table import Kind
from tailrace.source.base import Reader
from tailrace.source.kind import SourceTools
from tailrace.sources import KINDS, resolve
from tailrace.testing.database import Before, ScriptedDatabase, ScriptedKind
from tailrace.testing.reads import ScriptedQueries, ScriptedReads


class Abilities(Struct, frozen=True):
    """What a database promises. A test that needs what it does not have is skipped for it."""

    schemas: bool = False
    """It has tables outside its default schema."""

    hidden_number: bool = False
    """A table without a primary key has rows that are known by a hidden number."""

    whole_before: bool = True
    """Updates and deletes carry the whole row as it was."""

    truncate: bool = False
    """It tells of a truncation, in place of deletes."""

    unchanged: bool = False
    """An update does not send the column `note` of `NOTED` unless it sets it."""

    progress: bool = False
    """It tells how far it is where it moved on without a change that is captured."""

    schema_alone: bool = True
    """A schema change comes by itself, and not with the first change of the table after it."""

    schema_text: bool = True
    """A schema change carries the text of the table."""

    reads: bool = True
    """It has a reading side."""

    sql: bool = True
    """Its reading side runs queries."""


class Insert(Struct, frozen=True):
    table: str
    row: dict
    schema: str = ""


class Update(Struct, frozen=True):
    table: str
    where: dict
    values: dict
    schema: str = ""


class Delete(Struct, frozen=True):
    table: str
    where: dict
    schema: str = ""


class Truncate(Struct, frozen=True):
    table: str
    schema: str = ""


class AddColumn(Struct, frozen=True):
    table: str
    column: str
    schema: str = ""


class TableMade(Struct, frozen=True):
    """A table for tests. The first column is the primary key where it is `keyed`."""

    name: str
    columns: dict
    keyed: bool = True
    schema: str = ""


ITEM = TableMade("item", {"id": Kind.I64, "name": Kind.STR})
NOTED = TableMade("noted", {"id": Kind.I64, "name": Kind.STR, "note": Kind.STR})
KEYLESS = TableMade("note", {"text": Kind.STR}, keyed=False)
ELSEWHERE = TableMade("item", {"id": Kind.I64, "name": Kind.STR}, schema="other")


class Database:
    """What the suite does with a database: write to it, and open sources on it."""

    abilities = Abilities()
    url = ""
    slow_query = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
    """A query that takes for ever."""

    def open(self, name="app", reader="log"):
        return resolve(self.url).open(name, Reader(reader), SourceTools(SystemClock(), Metrics()))

    def source(self, name="app", reader="log"):
        return self.open(name, reader).capture

    def create(self, table):
        raise NotImplementedError

    def write(self, *writes):
        """Make each write a transaction of its own."""
        for write in writes:
            self.run(write)

    def run(self, write):
        raise NotImplementedError

    def move_on(self):
        """Commit something that is not captured; only with the ability `progress`."""
        raise NotImplementedError

    def transaction(self, *, commit=True):
        """Give a block whose writes are one transaction, or are rolled back."""
        raise NotImplementedError

    def close(self):
        pass


class SqlDatabase(Database):
    """A database that takes SQL: what differs is `execute` and the names of types."""

    types: ClassVar = {Kind.I64: "BIGINT", Kind.STR: "TEXT"}
    key_types: ClassVar = types

    def execute(self, sql):
        raise NotImplementedError

    def create(self, table):
        key = next(iter(table.columns)) if table.keyed else None
        columns = [
            f"{name} {self.key_types[kind]} PRIMARY KEY" if name == key else f"{name} {self.types[kind]}"
            for name, kind in table.columns.items()
        ]
        self.execute(f"CREATE TABLE {_path(table.schema, table.name)}({', '.join(columns)})")

    def run(self, write):
        path = _path(write.schema, write.table)
        match write:
            case Insert():
                values = ", ".join(map(_literal, write.row.values()))
                self.execute(f"INSERT INTO {path}({', '.join(write.row)}) VALUES({values})")
            case Update():
                self.execute(f"UPDATE {path} SET {_equal(write.values, ', ')} WHERE {_equal(write.where, ' AND ')}")
            case Delete():
                self.execute(f"DELETE FROM {path} WHERE {_equal(write.where, ' AND ')}")
            case Truncate():
                self.execute(f"TRUNCATE TABLE {path}")
            case AddColumn():
                self.execute(f"ALTER TABLE {path} ADD COLUMN {write.column} {self.types[Kind.I64]}")

    @contextlib.contextmanager
    def transaction(self, *, commit=True):
        self.execute("BEGIN")
        yield
        self.execute("COMMIT" if commit else "ROLLBACK")


class SqliteDatabase(SqlDatabase):
    abilities = Abilities(hidden_number=True)
    key_types: ClassVar = {Kind.I64: "INTEGER"}

    def __init__(self, directory):
        path = directory / "app.db"
        self.url = f"sqlite:///{path}"
        self._writer = apsw.Connection(str(path))
        self._writer.set_busy_timeout(10_000)
        self.execute("PRAGMA journal_mode = wal")

    def execute(self, sql):
        self._writer.execute(sql).fetchall()

    def close(self):
        self._writer.close()


class MemoryDatabase(Database):
    """The scripted database of `tailrace.testing`."""

    abilities = Abilities(schemas=True, hidden_number=True, truncate=True, progress=True)
    url = "scripted://app"
    reads = ScriptedQueries

    def __init__(self, _directory):
        self.database = self.make()
        kind = ScriptedKind({"app": self.database}, self.reads)
        KINDS["scripted"] = lambda: kind

    def make(self):
        return ScriptedDatabase()

    def create(self, table):
        key = [next(iter(table.columns))] if table.keyed else []
        self.database.create(table.name, table.columns, key, table.schema)

    def run(self, write):
        match write:
            case Insert():
                self.database.insert(write.table, write.row, write.schema)
            case Update():
                self.database.update(write.table, write.where, write.values, write.schema)
            case Delete():
                self.database.delete(write.table, write.where, write.schema)
            case Truncate():
                self.database.truncate(write.table, write.schema)
            case AddColumn():
                self.database.add_column(write.table, write.column, Kind.I64, write.schema)

    @contextlib.contextmanager
    def transaction(self, *, commit=True):
        self.database.begin()
        yield
        self.database.commit() if commit else self.database.rollback()

    def move_on(self):
        self.database.move_on()

    def close(self):
        del KINDS["scripted"]


class SparseDatabase(MemoryDatabase):
    """Sends of a row as it was the key alone, and of one as it is not all; and has no SQL."""

    abilities = structs.replace(MemoryDatabase.abilities, whole_before=False, unchanged=True, sql=False)
    reads = ScriptedReads

    def make(self):
        return ScriptedDatabase(before=Before.KEY, unchanged={"note"})


class PostgresDatabase(SqlDatabase):
    """A database of a real server."""

    abilities = Abilities(schemas=True, whole_before=False, truncate=True, progress=True, sql=False)
    version = 15

    def __init__(self, _directory):
        self.server = postgres_servers.shared(self.version)
        self.name = self.server.new_database()
        self.url = self.server.sql_url(self.name)
        self._writer = self.server.connect(self.name)
        self._writer.autocommit = True

    def execute(self, sql):
        self._writer.execute(sql)

    def create(self, table):
        if table.schema:
            self.execute(f"CREATE SCHEMA {table.schema}")
        super().create(table)
        if not table.keyed:
            self.execute(f"ALTER TABLE {table.name} REPLICA IDENTITY FULL")

    def move_on(self):
        self.execute("CREATE VIEW elsewhere AS SELECT 1")

    def close(self):
        self._writer.close()
        self.server.drop_database(self.name)


def _versions():
    return {
        f"postgresql{version}": type(f"Postgres{version}Database", (PostgresDatabase,), {"version": version})
        for version in postgres_servers.VERSIONS
    }


DATABASES = {"sqlite": SqliteDatabase, "scripted": MemoryDatabase, "sparse": SparseDatabase, **_versions()}


def _path(schema, table):
    return f"{schema}.{table}" if schema else table


def _literal(value):
    if value is None:
        return "NULL"
    return f"'{value}'" if isinstance(value, str) else str(value)


def _equal(values, joint):
    return joint.join(f"{name} = {_literal(value)}" for name, value in values.items())
