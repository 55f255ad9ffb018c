"""A kind of source: what the rest of the program needs to know of one URL scheme, and nothing of the database itself.

A new database joins by implementing `SourceKind` and adding one entry to `tailrace.sources.KINDS`.
"""

from typing import Any, Protocol, TypeVar

from msgspec import Struct

from tailrace.clock import Clock
from tailrace.metrics import Metrics
from tailrace.source.administration import Administration
from tailrace.source.base import QuerySource, Source
from tailrace.source.key_value import KeyValueStore
from tailrace.source.reader import Reader
from tailrace.source.statement import StatementRunner

__all__ = [
    "OpenedSource",
    "SourceKind",
    "SourceTools",
]

_OptionsT_contra = TypeVar("_OptionsT_contra", bound=Struct, contravariant=True)


class SourceTools(Struct, frozen=True):
    """What a source is given of the program that opens it."""

    clock: Clock
    metrics: Metrics
    query_runs_max: int = 4
    """Queries of the source that may run at one time."""

    capture_enabled: bool = True
    """Whether `OpenedSource.capture` will run: else what clients write is not captured by this process."""


class OpenedSource(Struct, frozen=True):
    """One database: its capturing side, and what else it can do; None for what it cannot.

    Nothing is connected yet. The caller closes each part that it uses.
    """

    capture: Source
    dialect: str
    """Name of the SQL dialect in which predicates on its rows are written."""

    reads: QuerySource | None = None
    values: KeyValueStore | None = None
    statements: StatementRunner | None = None


class SourceKind(Protocol[_OptionsT_contra]):
    """One URL scheme. URLs come without their query: that holds options, which are decoded as `options` says."""

    @property
    def title(self) -> str:
        """Return the name of the database for people."""

    @property
    def dialect(self) -> str:
        """Return the name of the SQL dialect in which predicates on rows are written."""

    @property
    def options(self) -> type[Any]:
        """Return the struct of the options: each has a default, and unknown ones are forbidden.

        Its `__post_init__` may raise `ValueError("OPTION: reason")`.
        """

    def require_url(self, url: str) -> None:
        """Look whether a URL can name a database of this kind. Touches nothing.

        Raises:
            ConfigError: It cannot.
        """

    def check(self, url: str, options: _OptionsT_contra) -> None:
        """Look whether the database can be captured, as far as can be seen without changing it. Blocking.

        A database that is locked or away may come back, and passes.

        Raises:
            SourceStateError: It cannot be captured unless someone does what the message says.
        """

    def open(self, name: str, url: str, options: _OptionsT_contra, reader: Reader, tools: SourceTools) -> OpenedSource:
        """Return the sides of the database. `reader` is who the database remembers as having read so far."""

    def administer(self, url: str, options: _OptionsT_contra) -> Administration:
        """Return what operators do to capture in the database."""
