"""What a pipeline is: where from, where to, and how. Pure, but for reading a file."""

import re
import tomllib
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from tailrace.envelope.envelopes import envelope_of
from tailrace.message.outbox import OnRefused
from tailrace.message.shape import ShapeOptions
from tailrace.message.targets import TARGETS
from tailrace.model.errors import ConfigError
from tailrace.pipeline.sink.base import Mode
from tailrace.sink_url import parse

__all__ = ["Definition", "check_definition", "definition_of_file"]

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
_TABLES_MAX = 1000


class Definition(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One pipeline."""

    name: str
    source: str
    """Name of the source on the server."""

    tables: tuple[str, ...]
    sink: str
    """URL of the sink. It may hold a password: show `shown_sink`."""

    mode: Mode | None = None
    """What the sink makes of the changes; the sink's usual mode by default."""

    transform: str = ""
    """Spark SQL over the view `changes`; empty for none."""

    server: str = "http://127.0.0.1:8080"

    envelope: str = ""
    """How a message tells a change; our own envelope by default. This and the next three are for sinks of messages."""

    filter: str = ""
    """SQL predicate, or a CEL one behind `cel:`; empty for all changes."""

    project: tuple[str, ...] = ()
    """Columns, and `NAME = EXPRESSION`, that messages have; all columns by default."""

    on_refused: OnRefused = OnRefused.PARK
    """What becomes of a change that the target refuses."""

    @property
    def is_message_sink(self) -> bool:
        """Tell whether the sink takes changes as messages."""
        return parse(self.sink).scheme in TARGETS

    @property
    def takes_images(self) -> bool:
        """Tell whether the sink is given rows as the log has them, without types."""
        return self.is_message_sink and not self.transform

    @property
    def shape(self) -> ShapeOptions:
        """Return what the sink makes of changes where it takes messages."""
        return ShapeOptions(filter=self.filter, project=self.project, envelope=self.envelope)

    @property
    def shown_sink(self) -> str:
        """Return the sink's URL without its password."""
        return str(parse(self.sink))


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
    if definition.envelope:
        envelope_of(definition.envelope)
    told = definition.envelope or definition.filter or definition.project or definition.on_refused is not OnRefused.PARK
    scheme = parse(definition.sink).scheme
    if told and scheme not in TARGETS:
        raise ConfigError(f"envelope, filter, project and on_refused are for messages: a {scheme} sink takes transform")
    return definition


def definition_of_file(path: Path) -> Definition:
    """Read a definition from a TOML file, whose keys are the members of `Definition`.

    Raises:
        ConfigError: It cannot be read, or something in it is wrong.
    """
    try:
        tree: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
        return check_definition(msgspec.convert({"name": path.stem, **tree}, Definition))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not a TOML file: {error}") from error
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path}: {error}") from error
