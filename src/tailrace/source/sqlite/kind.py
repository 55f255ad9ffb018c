"""SQLite as a kind of source: `sqlite:///relative.db`, `sqlite:////absolute.db`."""

from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from msgspec import Struct

from tailrace.model.errors import ConfigError
from tailrace.quantity import parse_duration_s, parse_size_bytes
from tailrace.source.administration import Finding
from tailrace.source.kind import OpenedSource, SourceTools
from tailrace.source.reader import Reader
from tailrace.source.sqlite.capture_setup import (
    Status,
    exec_bulk,
    exec_ddl,
    remove,
    remove_reader,
    set_up,
    status,
)
from tailrace.source.sqlite.connection import require_capturable
from tailrace.source.sqlite.doctor import examine
from tailrace.source.sqlite.kv_store import SqliteKeyValueStore
from tailrace.source.sqlite.options import SqliteOptions
from tailrace.source.sqlite.query import SqliteQuerySource
from tailrace.source.sqlite.source import SqliteSource
from tailrace.source.sqlite.statement import SqliteStatementRunner

__all__ = ["SqliteAdministration", "SqliteKind", "SqliteSettings", "sqlite_path"]

_ADVICE = (
    "SQLite refuses ALTER TABLE … DROP COLUMN from now on. Run it with: tailrace capture exec URL 'ALTER TABLE …'",
    "A running server writes now and then: set a busy timeout in the application (PRAGMA busy_timeout = 5000).",
)
_ADVICE_WAL = (
    "The journal mode is {mode}: readers and writers lock each other out, so writes without a busy timeout fail at "
    "times, and transactions may be merged into one commit. Recommended: PRAGMA journal_mode = wal"
)

_WAL_BYTES_LEAST = SqliteOptions().hold_bytes_lock


class SqliteSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Options of an SQLite source, as people write them."""

    busy_timeout: str = "5s"
    """How long capture waits for a locked database when it is set up, follows a schema change or is removed."""

    poll_interval: str = "0.25s"
    """How often to look for changes without having been woken by the files."""

    trim_interval: str = "5s"
    """How long changes that the log has may stay in the database."""

    wal_bytes_max: str | int = "128MiB"
    """Size beyond which the write-ahead log is not held; borders of transactions may be lost then."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            try:
                self._number(name)
            except ConfigError as error:
                raise ValueError(f"{name}: {error}") from error

    def tuned(self) -> SqliteOptions:
        """Return the options of the parts that do the work."""
        return SqliteOptions(
            busy_timeout_ms=round(self._number("busy_timeout") * 1000),
            poll_interval_s=self._number("poll_interval"),
            trim_interval_s=self._number("trim_interval"),
            hold_bytes_max=int(self._number("wal_bytes_max")),
        )

    def _number(self, name: str) -> float:
        """Return an option in seconds or bytes."""
        value = getattr(self, name)
        number = parse_size_bytes(value) if name == "wal_bytes_max" else parse_duration_s(value)
        if number is None:
            raise ConfigError("there must be a limit")
        if name == "wal_bytes_max" and number < _WAL_BYTES_LEAST:
            raise ConfigError(f"give at least {_WAL_BYTES_LEAST >> 20}MiB: capture copies the log from there on")
        return number


class SqliteKind:
    """Captures by triggers, reads, keeps keys and values, and runs statements."""

    title = "SQLite"
    dialect = "sqlite"
    options = SqliteSettings

    def require_url(self, url: str) -> None:
        """Look whether a URL names a file; see `SourceKind.require_url`."""
        sqlite_path(url)

    def check(self, url: str, options: SqliteSettings) -> None:
        """Look whether there is a database that this process may write to; it may be locked."""
        require_capturable(sqlite_path(url))

    def open(self, name: str, url: str, options: SqliteSettings, reader: Reader, tools: SourceTools) -> OpenedSource:
        """Return all sides of the database; see `SourceKind.open`."""
        path = sqlite_path(url)
        captor = reader if tools.capture_enabled else None
        return OpenedSource(
            SqliteSource(name, path, reader, options.tuned(), tools.clock),
            self.dialect,
            SqliteQuerySource(path, reader, tools.query_runs_max, tools.metrics),
            SqliteKeyValueStore(path, captor, tools.clock),
            SqliteStatementRunner(path, captor, tools.metrics),
        )

    def administer(self, url: str, options: SqliteSettings) -> "SqliteAdministration":
        """Return what operators do to capture in the database."""
        return SqliteAdministration(sqlite_path(url), options.tuned())


class SqliteAdministration:
    """Capture in one SQLite database; see `Administration`."""

    def __init__(self, path: Path, options: SqliteOptions) -> None:
        self._path = path
        self._options = options

    def set_up(self) -> Sequence[str]:
        """Set capture up, and say what applications must know."""
        set_up(self._path, self._options)
        mode = self.status().journal_mode
        return _ADVICE if mode == "wal" else (*_ADVICE, _ADVICE_WAL.format(mode=mode))

    def remove(self, *, force: bool) -> bool:
        """Remove capture; see `Administration.remove`."""
        return remove(self._path, self._options, force=force)

    def remove_reader(self, name: str, *, force: bool) -> None:
        """Forget a reader; see `Administration.remove_reader`."""
        remove_reader(self._path, name, self._options, force=force)

    def status(self) -> Status:
        """Return what capture is doing."""
        return status(self._path, self._options)

    def execute(self, sql: str, *, bulk: bool) -> None:
        """Run schema changes without our triggers in their way, or a bulk load."""
        (exec_bulk if bulk else exec_ddl)(self._path, sql, self._options)

    def doctor(self) -> Sequence[Finding]:
        """Return what is wrong or risky for capture."""
        return examine(self._path, self._options)


def sqlite_path(url: str) -> Path:
    """Return the path in an SQLite URL: three slashes before a relative path, four before an absolute one.

    Raises:
        ConfigError: It has no path, or something besides one.
    """
    parts = urlsplit(url)
    path = unquote(parts.path.removeprefix("/"))
    if parts.netloc or parts.query or parts.fragment or path in {"", ":memory:"}:
        raise ConfigError("an SQLite source is a file: write sqlite:///relative.db or sqlite:////absolute.db")
    return Path(path).absolute()
