"""Which URL is which source: the only place that knows the databases by name."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

import msgspec
from msgspec import Struct

from tailrace.config_file import problem_of
from tailrace.model.errors import ConfigError, SourceOptionError, UnknownSchemeError
from tailrace.source.administration import Administration
from tailrace.source.kind import OpenedSource, SourceKind, SourceTools
from tailrace.source.reader import Reader

__all__ = ["IN_URL", "KINDS", "SOURCE_OPTION", "ResolvedSource", "create_embedded", "resolve", "without_password"]

IN_URL = "the URL"
"""Where an option was given, in `SourceOptionError`."""

SOURCE_OPTION = "--source-option"
"""The flag that gives options to sources, by the source's name where there may be several."""


def _sqlite() -> SourceKind[Any]:
    from tailrace.source.sqlite.kind import SqliteKind

    return SqliteKind()


def _postgres() -> SourceKind[Any]:
    from tailrace.source.postgres.kind import PostgresKind

    return PostgresKind()


KINDS: dict[str, Callable[[], SourceKind[Any]]] = {"sqlite": _sqlite, "postgresql": _postgres, "postgres": _postgres}
"""What loads the kind of source of each URL scheme. Loaded when used: a driver may be large, or not installed."""

_NOT_YET = {
    "mysql": "MySQL",
    "mariadb": "MariaDB",
}
"""Databases that people may expect here."""

_SECRETS = ("password", "passwd", "secret", "token")
"""Options with one of these in their name are not shown."""


class ResolvedSource(Struct, frozen=True):
    """A database by its URL: its kind, its URL without options, and its options."""

    kind: SourceKind[Any]
    url: str
    options: Any

    def check(self) -> None:
        """Look whether the database can be captured; see `SourceKind.check`. Blocking."""
        self.kind.check(self.url, self.options)

    def open(self, name: str, reader: Reader, tools: SourceTools) -> OpenedSource:
        """Return the sides of the database; see `SourceKind.open`."""
        return self.kind.open(name, self.url, self.options, reader, tools)

    def administer(self) -> Administration:
        """Return what operators do to capture in the database."""
        return self.kind.administer(self.url, self.options)


def resolve(url: str, options: Mapping[str, Any] | None = None, origin: str = "options") -> ResolvedSource:
    """Return the source at a URL. Its options are in the query of the URL, or given apart; `origin` says where.

    Raises:
        UnknownSchemeError: No kind of source has such a URL.
        SourceOptionError: An option is unknown, wrong, or given in both places.
        ConfigError: It is no URL, or cannot name a database.
    """
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise ConfigError(f"this is not a database URL: {error}") from error
    if not parts.scheme or "://" not in url:
        raise ConfigError(f"{without_password(url)!r} is not a database URL: write e.g. sqlite:///app.db")
    if parts.fragment:
        raise ConfigError("a database URL has no part after '#': write the character as %23")
    load = KINDS.get(parts.scheme)
    if load is None:
        database = _NOT_YET.get(parts.scheme)
        reason = f"this version cannot capture {database} yet" if database else ""
        raise UnknownSchemeError(parts.scheme, KINDS, reason)
    kind = load()
    plain = url.partition("?")[0]
    kind.require_url(plain)
    return ResolvedSource(kind, plain, _decoded(kind, parts.query, options or {}, origin))


def _decoded(kind: SourceKind[Any], query: str, given: Mapping[str, Any], origin: str) -> Struct:
    """Return the options of a source as its kind has them."""
    in_url: dict[str, str] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name in in_url:
            raise SourceOptionError(name, ": it is given twice", IN_URL)
        in_url[name] = value
    for name in in_url.keys() & given.keys():
        raise SourceOptionError(name, ": it is in the URL as well; give it once", origin)
    tree = {**in_url, **given}
    try:
        decoded: Struct = msgspec.convert(tree, kind.options, strict=False)
    except msgspec.ValidationError as error:
        problem = problem_of(error, kind.options, tree)
        name, reason = problem.path, problem.reason
        if not name:  # it comes from the struct itself: "OPTION: reason"
            name, _, reason = reason.partition(": ")
        if _is_secret(name) and not problem.unknown:
            reason = "it is not what it should be"  # without its value
        said = f" is unknown{reason}" if problem.unknown else f": {reason}"
        raise SourceOptionError(name, said, IN_URL if name in in_url else origin) from error
    return decoded


def create_embedded(path: Path) -> str:
    """Make the embedded database where there is none, and return its URL. Blocking."""
    from tailrace.source.sqlite.connection import create_database

    create_database(path)
    return f"sqlite:///{quote(str(path))}"


def without_password(url: str) -> str:
    """Return a URL in which passwords are not shown."""
    parts = urlsplit(url)
    if parts.password is not None:
        host = parts.netloc.rpartition("@")[2]
        parts = parts._replace(netloc=f"{parts.username or ''}:***@{host}")
        url = urlunsplit(parts)
    options = parse_qsl(parts.query, keep_blank_values=True)
    if any(_is_secret(name) for name, _ in options):
        shown = [(name, "***" if _is_secret(name) else value) for name, value in options]
        url = url.replace(f"?{parts.query}", f"?{urlencode(shown, safe='*')}")
    return url


def _is_secret(option: str) -> bool:
    return any(word in option.lower() for word in _SECRETS)
