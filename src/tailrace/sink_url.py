"""Sinks are URLs. What such a URL says, without ever showing its password.

`${NAME}` in a user, a password, a path or an option stands for a secret, which is looked up when the sink is opened.
"""

import os
import re
import string
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from msgspec import Struct, structs

from tailrace.model.errors import ConfigError
from tailrace.model.table import TableName

__all__ = ["Secrets", "SinkUrl", "Spelling", "a_sink", "parse", "refuse_shared", "revealed", "spelled"]

_SECRET = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_LINE = re.compile(r"\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*?)\s*")


class SinkUrl(Struct, frozen=True):
    """A URL in its parts. Shown without the password and without the options, which may hold one."""

    scheme: str
    path: str = ""
    host: str = ""
    """Where there are several, with commas between them and each with its port, if it has one; then `port` is None."""

    port: int | None = None
    user: str = ""
    password: str = ""
    options: dict[str, str] = {}
    shown: str = ""
    """How it is shown once secrets are filled in: as it was before."""

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        if self.shown:
            return self.shown
        user = f"{self.user}:***@" if self.password else f"{self.user}@" if self.user else ""
        port = "" if self.port is None else f":{self.port}"
        slashes = "//" if self.host or self.path.startswith("/") else ""
        host = f"[{self.host}]" if ":" in self.host and "," not in self.host else self.host
        return f"{self.scheme}:{slashes}{user}{host}{port}{self.path}"

    def only(self, *names: str) -> dict[str, str]:
        """Return the options.

        Raises:
            ConfigError: There is another one than these.
        """
        for name in self.options:
            if name not in names:
                takes = f"takes {', '.join(names)}" if names else "takes none"
                raise ConfigError(f"{a_sink(self.scheme)} has no option {name!r}: it {takes}")
        return self.options


def a_sink(scheme: str) -> str:
    """Return a kind of sink in words: `a redis sink`, `an amqp sink`."""
    return f"{'an' if scheme[:1] in 'aeiou' else 'a'} {scheme} sink"


def parse(text: str, example: str = "delta:///lake/orders") -> SinkUrl:
    """Take a URL apart. Who wrote something else is shown an example.

    Raises:
        ConfigError: It is none. The message does not show it: it may hold a password.
    """
    try:
        parts = urlsplit(text)
        hosts = parts.netloc.rpartition("@")[2]
        port = None if "," in hosts else parts.port
        pairs = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError:
        raise ConfigError(f"the sink is not a URL: write e.g. {example}, percent-encoding passwords") from None
    if not parts.scheme or parts.fragment:
        raise ConfigError(f"the sink is not a URL: write e.g. {example}, percent-encoding passwords")
    host = hosts if "," in hosts else parts.hostname or ""
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    options = dict(pairs)
    if len(options) != len(pairs):
        raise ConfigError(f"the {parts.scheme} sink names an option twice")
    return SinkUrl(parts.scheme, unquote(parts.path), host, port, user, password, options)


_PLACES = {"source", "table"}


def spelled(template: str, table: TableName, encoded: Callable[[str], str] = str) -> str:
    """Return the name of a table's target: `{source}` and `{table}` are replaced, each `encoded`.

    Raises:
        ConfigError: The template names something else, or is not well formed. It is not shown: it may hold a secret.
    """
    try:
        names = {name for _, name, _, _ in string.Formatter().parse(template) if name is not None}
    except ValueError:
        names = {""}
    if names - _PLACES:
        raise ConfigError("in the places of tables that a sink names only {table} and {source} are replaced")
    return template.format(source=encoded(table.source), table=encoded(table.wire.replace(".", "_")))


class Spelling:
    """Names of the targets of tables by one template, each found out once.

    Raises:
        ConfigError: The template is none.
    """

    def __init__(self, template: str, encoded: Callable[[str], str] = str) -> None:
        self._template = template
        self._encoded = encoded
        self._names: dict[TableName, str] = {}
        spelled(template, TableName("source", "table"), encoded)

    def __call__(self, table: TableName) -> str:
        """Return the name of a table's target."""
        name = self._names.get(table)
        if name is None:
            name = self._names[table] = spelled(self._template, table, self._encoded)
        return name


def refuse_shared(places: Sequence[object], where: str = "sink's URL") -> None:
    """Check that each of several tables has a place of its own.

    Raises:
        ConfigError: Two would go into one. `where` is what the user has to write `{table}` into.
    """
    if len(set(places)) != len(places):
        raise ConfigError(f"several tables would go into one: put {{table}} into the {where}")


class Secrets(Struct, frozen=True):
    """Where secrets come from: a file, and for what that does not have, the environment. Read when they are needed.

    The file has lines `NAME=value`, or is TOML with the same names.
    """

    file: str = ""

    def values(self) -> Mapping[str, str]:
        """Return all there are.

        Raises:
            ConfigError: The file cannot be read. Nothing of what it says is shown.
        """
        return {**os.environ, **_of_file(Path(self.file))} if self.file else dict(os.environ)


def revealed(url: SinkUrl, secrets: Mapping[str, str] | None) -> SinkUrl:
    """Return a URL with its secrets filled in, to open the sink with. It is shown as before.

    Without secrets each becomes a made-up value, to look whether the URL is right otherwise.

    Raises:
        ConfigError: There is no secret of that name.
    """

    def fill(found: re.Match[str]) -> str:
        if secrets is None:
            return "secret"
        if found[1] not in secrets:
            raise ConfigError(
                f"{found[1]} is missing: set that environment variable, or write it into the file that --secrets, or "
                "secrets_file in the configuration, names"
            )
        return secrets[found[1]]

    parts = {name: _SECRET.sub(fill, getattr(url, name)) for name in ("user", "password", "path")}
    options = {name: _SECRET.sub(fill, value) for name, value in url.options.items()}
    return structs.replace(url, **parts, options=options, shown=str(url))


def _of_file(path: Path) -> dict[str, str]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the secrets in {path}: {type(error).__name__}") from None
    try:
        tree = tomllib.loads(text)
        if all(isinstance(value, str) for value in tree.values()):
            return tree
    except tomllib.TOMLDecodeError:
        pass  # it has lines then, as a value does that TOML takes for a number: what was written counts, not its value
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    pairs = [_LINE.fullmatch(line) for line in lines]
    if not all(pairs):
        raise ConfigError(f"{path} is no file of secrets: write lines NAME=value, or TOML with texts")
    return {found[1]: _unquoted(found[2]) for found in pairs if found is not None}


def _unquoted(text: str) -> str:
    """Return a value without the quotation marks around it."""
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else text
