"""The one metadata database: all tables of the newest version, asked in transactions that block."""

from collections.abc import Callable
from pathlib import Path
from typing import Self, TypeVar

from sqlalchemy import Connection, Engine

from tailrace.clock import Clock
from tailrace.meta.engine import open_engine, require_sound, transact
from tailrace.meta.migration import bring_forward
from tailrace.meta.older_pipelines import take_over_pipelines

__all__ = ["Database", "Store"]

_T = TypeVar("_T")


class Database:
    """A metadata database for any number of threads. What a method wrote is durable when it returns.

    All methods block, and raise `MetadataError` where the database refuses.
    """

    def __init__(self, engine: Engine, clock: Clock) -> None:
        self.clock = clock
        self.engine = engine

    @classmethod
    def open(cls, url: str, clock: Clock, older: Path | None = None, *, checked: bool = False) -> Self:
        """Connect to the database at an SQLAlchemy URL and bring its tables to the newest version.

        `older` is the file in which an older version kept pipelines; where there is one, they are taken over. With
        `checked`, a damaged file is refused although what is asked for may be readable: that reads all of it.

        Raises:
            ConfigError: The URL is malformed or its driver is not installed.
            MetadataError: The database refused, or was written by a newer Tailrace.
        """
        engine = open_engine(url)
        try:
            if checked:
                transact(engine, require_sound)
            bring_forward(engine, clock)
            if older is not None:
                take_over_pipelines(engine, older, clock)
        except BaseException:
            engine.dispose()
            raise
        return cls(engine, clock)

    @property
    def url(self) -> str:
        """Return the URL of the database, with its password."""
        return self.engine.url.render_as_string(hide_password=False)

    def transact(self, statements: Callable[[Connection], _T]) -> _T:
        """Run statements as one transaction and return what they do; durable on return."""
        return transact(self.engine, statements)

    def close(self) -> None:
        """Disconnect. Safe to repeat."""
        self.engine.dispose()


class Store:
    """Some tables of a metadata database. All methods block; see `Database`."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self._clock = database.clock

    @classmethod
    def open(cls, url: str, clock: Clock, older: Path | None = None) -> Self:
        """Open a database for this store alone; see `Database.open`."""
        return cls(Database.open(url, clock, older))

    @property
    def url(self) -> str:
        """Return the URL of the database, with its password."""
        return self.database.url

    def close(self) -> None:
        """Disconnect from the database, also all others that use it."""
        self.database.close()

    def _transact(self, statements: Callable[[Connection], _T]) -> _T:
        return self.database.transact(statements)
