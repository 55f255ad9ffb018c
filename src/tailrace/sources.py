"""Which URL is which source: the only place that knows the databases by name."""

from pathlib import Path
from urllib.parse import unquote, urlsplit, urlunsplit

from tailrace.clock import Clock
from tailrace.metrics import Metrics
from tailrace.model.errors import ConfigError
from tailrace.source.base import QuerySource, Reader, Source
from tailrace.source.key_value import KeyValueStore
from tailrace.source.sqlite.connection import create_database, require_capturable
from tailrace.source.sqlite.kv_store import SqliteKeyValueStore
from tailrace.source.sqlite.options import SqliteOptions
from tailrace.source.sqlite.query import SqliteQuerySource
from tailrace.source.sqlite.source import SqliteSource
from tailrace.source.sqlite.statement import SqliteStatementRunner
from tailrace.source.statement import StatementRunner

__all__ = [
    "Reader",
    "build_key_value_store",
    "build_query_source",
    "build_source",
    "build_statement_runner",
    "create_embedded",
    "require_source",
    "sqlite_path",
    "without_password",
]


def build_source(name: str, url: str, reader: Reader, clock: Clock, *, create: bool = False) -> Source:
    """Return the source at a URL. `reader` is who the database remembers as having read so far.

    `create` lets an embedded database be made where there is none.

    Raises:
        ConfigError: No kind of source has such a URL.
    """
    return SqliteSource(name, sqlite_path(url), reader, SqliteOptions(create=create), clock)


def build_query_source(url: str, reader: Reader, runs_max: int, metrics: Metrics) -> QuerySource:
    """Return the reading side of the source at a URL; `reader` is who captures it.

    At most `runs_max` queries run at one time.

    Raises:
        ConfigError: No kind of source has such a URL.
    """
    return SqliteQuerySource(sqlite_path(url), reader, runs_max, metrics)


def require_source(url: str) -> None:
    """Look whether there is a database at a URL that this process may write to; it may be locked. Blocking.

    Raises:
        ConfigError: No kind of source has such a URL.
        SourceStateError: There is none, or capture could not write to it.
    """
    require_capturable(sqlite_path(url))


def create_embedded(url: str) -> None:
    """Make the embedded database where there is none. Blocking."""
    create_database(sqlite_path(url))


def build_key_value_store(url: str, reader: Reader | None, clock: Clock) -> KeyValueStore | None:
    """Return the keys and values of the source at a URL, None for a source that has none.

    `reader` is who captures the source; without one nobody does.

    Raises:
        ConfigError: No kind of source has such a URL.
    """
    return SqliteKeyValueStore(sqlite_path(url), reader, clock)


def build_statement_runner(url: str, reader: Reader | None, metrics: Metrics) -> StatementRunner:
    """Return what runs statements that write in the source at a URL; see `build_key_value_store`.

    Raises:
        ConfigError: No kind of source has such a URL.
    """
    return SqliteStatementRunner(sqlite_path(url), reader, metrics)


def sqlite_path(url: str) -> Path:
    """Return the path in an SQLite URL: three slashes before a relative path, four before an absolute one.

    Raises:
        ConfigError: It is no URL, of another database, or without a path.
    """
    parts = urlsplit(url)
    if not parts.scheme or "://" not in url:
        raise ConfigError(f"{without_password(url)!r} is not a database URL: write e.g. sqlite:///app.db")
    if parts.scheme != "sqlite":
        raise ConfigError(f"there is no source for {parts.scheme} URLs; there is one for sqlite")
    path = unquote(parts.path.removeprefix("/"))
    if parts.netloc or parts.query or parts.fragment or path in {"", ":memory:"}:
        raise ConfigError("an SQLite source is a file: write sqlite:///relative.db or sqlite:////absolute.db")
    return Path(path).absolute()


def without_password(url: str) -> str:
    """Return a URL in which a password is not shown."""
    parts = urlsplit(url)
    if parts.password is None:
        return url
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=f"{parts.username or ''}:***@{host}"))
