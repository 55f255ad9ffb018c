"""Databases on the command line: a URL, and options of its kind of source."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from tailrace.model.errors import SourceOptionError
from tailrace.sources import SOURCE_OPTION, ResolvedSource, resolve

__all__ = ["source_at", "source_options"]

_F = TypeVar("_F", bound=Callable[..., Any])

_FLAG = "--option"


def source_options(command: _F) -> _F:
    """Give a command that takes a database URL the flag for options of its source."""
    help_ = "An option of the kind of source, e.g. busy_timeout=10s; may be repeated."
    return click.option(_FLAG, SOURCE_OPTION, "options", multiple=True, metavar="OPTION=VALUE", help=help_)(command)


def source_at(url: str, options: Sequence[str]) -> ResolvedSource:
    """Return the source that a URL and options name.

    Raises:
        ConfigError: No kind of source has such a URL or such options.
    """
    values: dict[str, str] = {}
    for option in options:
        name, equals, value = option.partition("=")
        if not equals:
            raise SourceOptionError(name, ": write OPTION=VALUE", _FLAG)
        if name in values:
            raise SourceOptionError(name, ": it is given twice", _FLAG)
        values[name] = value
    return resolve(url, values, _FLAG)
