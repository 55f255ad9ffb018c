"""Sinks are URLs. What such a URL says, without ever showing its password. Pure."""

import string
from collections.abc import Callable
from urllib.parse import parse_qsl, unquote, urlsplit

from msgspec import Struct

from tailrace.model.errors import ConfigError
from tailrace.model.table import TableName

__all__ = ["SinkUrl", "parse", "spelled"]


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

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        user = f"{self.user}:***@" if self.password else f"{self.user}@" if self.user else ""
        port = "" if self.port is None else f":{self.port}"
        slashes = "" if self.scheme == "console" else "//"
        return f"{self.scheme}:{slashes}{user}{self.host}{port}{self.path}"

    def only(self, *names: str) -> dict[str, str]:
        """Return the options.

        Raises:
            ConfigError: There is another one than these.
        """
        for name in self.options:
            if name not in names:
                takes = f"takes {', '.join(names)}" if names else "takes none"
                raise ConfigError(f"a {self.scheme} sink has no option {name!r}: it {takes}")
        return self.options


def parse(text: str) -> SinkUrl:
    """Take a URL apart.

    Raises:
        ConfigError: It is none. The message does not show it: it may hold a password.
    """
    try:
        parts = urlsplit(text)
        hosts = parts.netloc.rpartition("@")[2]
        port = None if "," in hosts else parts.port
        pairs = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError:
        raise ConfigError(
            "the sink is not a URL: write e.g. delta:///lake/orders, percent-encoding passwords"
        ) from None
    if not parts.scheme or parts.fragment:
        raise ConfigError("the sink is not a URL: write e.g. delta:///lake/orders, percent-encoding passwords")
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
        ConfigError: The template names something else, or is not well formed.
    """
    try:
        names = {name for _, name, _, _ in string.Formatter().parse(template) if name is not None}
    except ValueError:
        names = {""}
    if names - _PLACES:
        raise ConfigError(f"in the sink's {template!r} only {{table}} and {{source}} are replaced")
    return template.format(source=encoded(table.source), table=encoded(table.wire.replace(".", "_")))
