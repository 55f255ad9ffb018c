"""Access to a running server, shared by the commands: where it is, who asks, and how to print what it says."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click
import msgspec
from msgspec import Struct

from tailrace.client import Client

__all__ = [
    "ServerAccess",
    "access_options",
    "counted",
    "member_lines",
    "parse_start",
    "parse_value",
    "server_option",
    "source_option",
    "table_lines",
]

server_option = click.option(
    "--server",
    metavar="URL",
    envvar="TAILRACE_SERVER",
    default="http://127.0.0.1:8080",
    show_default=True,
    help="The server, or set TAILRACE_SERVER.",
)
"""The option that names the server."""


class _SourceOption(click.Option):
    """`--source`; `--db`, which it was called before, is taken but not shown."""

    def add_to_parser(self, parser: Any, context: click.Context) -> None:
        super().add_to_parser(parser, context)
        parser.add_option(obj=self, opts=["--db"], dest=self.name, action="store", nargs=1)


source_option = click.option(
    "--source", cls=_SourceOption, help="The source's name; optional when the server has one source."
)
"""The option that names a source of the server."""

_CELL_WIDTH_MAX = 60
"""Longest cell of a table; what is longer is cut."""


class ServerAccess(Struct, frozen=True):
    """What the options of a command say about the server and the output."""

    server: str
    token: str | None
    as_json: bool

    def client(self) -> Client:
        """Return a client of the server, to be used with `with`."""
        return Client(self.server, self.token)

    def show(self, result: Any, lines: Callable[[], Sequence[str]]) -> None:
        """Print a result: as one line of JSON, or as lines for people."""
        if self.as_json:
            click.echo(msgspec.json.encode(result))
            return
        for line in lines():
            click.echo(line)


def access_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that lead to a server; it gets them as one argument, `access`."""

    @server_option
    @click.option("--token", envvar="TAILRACE_TOKEN", help="The token, or set TAILRACE_TOKEN.")
    @click.option("--json", "as_json", is_flag=True, help="Print JSON.")
    @functools.wraps(command)
    def run(*, server: str, token: str | None, as_json: bool, **options: Any) -> None:
        command(access=ServerAccess(server, token, as_json), **options)

    return run


def parse_value(text: str) -> Any:
    """Return the value that a word of the command line means: what it is as JSON, or else itself as text.

    So `5` is a number, `"5"` and `five` are texts, and `{"t":"u64","v":5}` is a typed literal.
    """
    try:
        return msgspec.json.decode(text)
    except ValueError:
        return text


def parse_start(text: str) -> str | int:
    """Return where to begin: an offset where the text is a number, or else the word or time that it is."""
    return int(text) if text.isascii() and text.isdigit() else text


def table_lines(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[str]:
    """Return a table as lines of aligned cells, the first being the names of the columns."""
    cells = [list(columns), *([_cell(value) for value in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]


def counted(count: int, noun: str) -> str:
    """Return a number of things in words: `1 row`, `2,000 rows`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def member_lines(members: Mapping[str, Any]) -> list[str]:
    """Return one thing as lines, each a name and a value, which is shown whole; without those that say nothing."""
    said = {name: _text(value) for name, value in members.items() if value not in (None, {}, "")}
    width = max(map(len, said), default=0)
    return [f"{name:<{width}}  {text}" for name, text in said.items()]


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text.replace("\n", "⏎")


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    text = _text(value)
    return text if len(text) <= _CELL_WIDTH_MAX else f"{text[: _CELL_WIDTH_MAX - 1]}…"
