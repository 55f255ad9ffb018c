"""Definitions of pipelines as people write them, checked. Pure, but for reading a file."""

import re
import tomllib
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from tailrace.envelope.envelopes import envelope_of
from tailrace.message.shape import ShapeOptions
from tailrace.message.targets import TARGETS
from tailrace.meta.dead_letter import OnRefused
from tailrace.meta.pipeline import Definition
from tailrace.model.errors import ConfigError
from tailrace.sink_url import parse

__all__ = [
    "Definition",
    "check_definition",
    "check_server",
    "definition_of_file",
    "is_message_sink",
    "shape_of",
    "takes_images",
]

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
_TABLES_MAX = 1000


def check_definition(definition: Definition) -> Definition:
    """Return a definition that can be kept.

    Raises:
        ConfigError: Something in it is wrong; the message says what to write.
    """
    if not _NAME.fullmatch(definition.name):
        raise ConfigError("the name of a pipeline is up to 64 letters, digits, '_', '-' and '.'")
    if not 1 <= len(definition.tables) <= _TABLES_MAX:
        raise ConfigError(f"name the tables of the pipeline: --table, 1 to {_TABLES_MAX} of them")
    if len(set(definition.tables)) != len(definition.tables):
        raise ConfigError("a table is named twice")
    check_server(definition.server)
    if definition.envelope:
        envelope_of(definition.envelope)
    shaped = (
        definition.envelope or definition.filter or definition.project or definition.on_refused is not OnRefused.PARK
    )
    scheme = parse(definition.sink).scheme
    if shaped and scheme not in TARGETS:
        raise ConfigError(f"envelope, filter, project and on_refused are for messages: a {scheme} sink takes transform")
    return definition


def check_server(url: str) -> None:
    """Look whether a text is the address of a server.

    Raises:
        ConfigError: It is not. It is not shown: it may hold a password.
    """
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if not good:
        raise ConfigError("the server address is not valid: write e.g. http://127.0.0.1:8080")
    if parts.username is not None:
        raise ConfigError("the server address must not contain a user or password: set a token in TAILRACE_TOKEN")


def is_message_sink(definition: Definition) -> bool:
    """Tell whether the sink takes changes as messages."""
    return parse(definition.sink).scheme in TARGETS


def takes_images(definition: Definition) -> bool:
    """Tell whether the sink is given rows as the log has them, without types."""
    return is_message_sink(definition) and not definition.transform


def shape_of(definition: Definition) -> ShapeOptions:
    """Return what the sink makes of changes where it takes messages."""
    return ShapeOptions(filter=definition.filter, project=definition.project, envelope=definition.envelope)


def definition_of_file(path: Path, **others: str) -> Definition:
    """Read a definition from a TOML file, whose keys are the members of `Definition`; for what it lacks, of `others`.

    Raises:
        ConfigError: It cannot be read, or something in it is wrong.
    """
    try:
        tree: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
        return check_definition(msgspec.convert({"name": path.stem, **others, **tree}, Definition))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not a TOML file: {error}") from error
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path}: {error}") from error
