"""What a sink without Spark is: where from, where to, and how."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import msgspec
from msgspec import Struct

from tailrace.envelope.envelopes import envelope_of
from tailrace.message.outbox import OutboxOptions
from tailrace.message.shape import ShapeOptions
from tailrace.message.targets import TARGETS
from tailrace.meta.dead_letter import OnRefused
from tailrace.model.errors import ConfigError
from tailrace.sink_url import parse

__all__ = ["SinkConfig", "check_sink_config", "read_sinks", "sink_named"]

_EXAMPLE = "kafka://HOST:9092/{table}"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")


class SinkConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """One sink that a live subscription feeds."""

    url: str
    """Where to. It may hold a password: show `shown_url`."""

    source: str = "default"
    tables: tuple[str, ...] = ()
    """Tables by their names on the wires; none for all, those to come included."""

    filter: str = ""
    """SQL predicate, or a CEL one behind `cel:`; empty for all changes."""

    project: tuple[str, ...] = ()
    """Columns, and `NAME = EXPRESSION`, that messages have; all columns by default."""

    envelope: str = ""
    """How a message tells a change; as the target wants it, or ours."""

    on_refused: OnRefused = OnRefused.PARK
    start: Literal["earliest", "latest"] = "latest"
    """Where the sink begins when it is run for the first time."""

    letters_max: int = 10_000
    """Most dead letters; with more the sink stops."""

    def __repr__(self) -> str:
        return f"a sink of {self.source}"

    @property
    def shown_url(self) -> str:
        """Return the URL without its password."""
        return str(parse(self.url))

    @property
    def shape(self) -> ShapeOptions:
        """Return what the sink makes of changes."""
        return ShapeOptions(self.tables, self.filter, self.project, self.envelope)

    @property
    def outbox(self) -> OutboxOptions:
        """Return how the sink sends."""
        return OutboxOptions(self.on_refused, self.letters_max)


def check_sink_config(name: str, config: SinkConfig) -> SinkConfig:
    """Return a sink that can be run.

    Raises:
        ConfigError: Something in it is wrong; the message says what to write.
    """
    with sink_named(name):
        if not _NAME.fullmatch(name):
            raise ConfigError("the name of a sink is up to 64 letters, digits, '_', '-' and '.'")
        scheme = parse(config.url, _EXAMPLE).scheme
        if scheme not in TARGETS:
            raise ConfigError(f"messages cannot go to {scheme} URLs; they can go to {', '.join(TARGETS)}")
        if config.letters_max < 1:
            raise ConfigError("letters_max must be at least 1")
        if config.envelope:
            envelope_of(config.envelope)
    return config


def read_sinks(tables: Any) -> dict[str, SinkConfig]:
    """Return the sinks of a configuration: `tables` is what it has as `sinks`.

    Raises:
        ConfigError: One is wrong; the message names it.
    """
    if not isinstance(tables, dict):
        raise ConfigError("sinks: write a table [sinks.NAME] for each")
    return {name: check_sink_config(name, _read(name, table)) for name, table in tables.items()}


@contextmanager
def sink_named(name: str) -> Iterator[None]:
    """Have errors of configuration name the sink whose they are."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"sink {name[:64]}: {error}") from error


def _read(name: str, table: Any) -> SinkConfig:
    try:
        return msgspec.convert(table, SinkConfig, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigError(f"sink {name[:64]}: {error}") from error
