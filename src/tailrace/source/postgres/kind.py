"""PostgreSQL as a kind of source: `postgresql://USER@HOST/DATABASE`."""

from contextlib import closing
from urllib.parse import urlsplit

from tailrace.extra import how_to_install
from tailrace.model.errors import ConfigError, SourceUnavailableError

try:
    import psycopg
except ImportError as error:
    raise ConfigError(f"PostgreSQL sources need psycopg: {how_to_install('postgresql')}") from error

from tailrace.source.kind import OpenedSource, SourceTools
from tailrace.source.postgres.administration import PostgresAdministration
from tailrace.source.postgres.catalog import Catalog
from tailrace.source.postgres.commit_watch import CommitWatch
from tailrace.source.postgres.kv_store import PostgresKeyValueStore
from tailrace.source.postgres.options import PostgresSettings
from tailrace.source.postgres.query import PostgresQuerySource
from tailrace.source.postgres.setup import require_capturable
from tailrace.source.postgres.source import PostgresSource
from tailrace.source.postgres.table_shape import DIALECT
from tailrace.source.reader import Reader

__all__ = ["PostgresKind"]


class PostgresKind:
    """Captures by logical replication, reads rows, and keeps keys and values. There is no SQL of clients yet."""

    title = "PostgreSQL"
    dialect = DIALECT
    options = PostgresSettings

    def require_url(self, url: str) -> None:
        """Look whether a URL is one that libpq understands; see `SourceKind.require_url`."""
        parts = urlsplit(url)
        try:
            if "," not in parts.netloc:  # several hosts have a port each
                _ = parts.port
            if parts.path.count("/") > 1:
                raise ValueError("a database has one name")
            psycopg.conninfo.conninfo_to_dict(url)
        except (ValueError, psycopg.ProgrammingError) as error:
            raise ConfigError("a PostgreSQL URL is postgresql://USER@HOST:PORT/DATABASE") from error

    def check(self, url: str, options: PostgresSettings) -> None:
        """Look whether the server can be captured; one that is away passes."""
        try:
            with closing(Catalog(url, options)) as catalog:
                require_capturable(catalog)
        except SourceUnavailableError:
            return

    def open(self, name: str, url: str, options: PostgresSettings, reader: Reader, tools: SourceTools) -> OpenedSource:
        """Return the sides of the database; see `SourceKind.open`."""
        watch = CommitWatch()
        return OpenedSource(
            PostgresSource(name, url, reader, options, tools, watch),
            self.dialect,
            PostgresQuerySource(name, url, options, watch),
            PostgresKeyValueStore(url, options, tools.clock, captured=tools.capture_enabled),
        )

    def administer(self, url: str, options: PostgresSettings) -> PostgresAdministration:
        """Return what operators do to capture in the database."""
        return PostgresAdministration(url, options)
