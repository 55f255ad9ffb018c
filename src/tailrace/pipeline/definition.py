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
from tailrace.pipeline.declared import declared_type, split_name
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
_LAKES = ("delta", "iceberg")
_DAY_S = 86_400.0
_MAINTAIN_S_MIN = 60.0
_FUNCTION = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")


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
    _check_transformation(definition)
    _check_types(definition)
    _check_operation(definition)
    if definition.envelope:
        envelope_of(definition.envelope)
    shaped = (
        definition.envelope or definition.filter or definition.project or definition.on_refused is not OnRefused.PARK
    )
    scheme = parse(definition.sink).scheme
    if shaped and scheme not in TARGETS:
        raise ConfigError(f"envelope, filter, project and on_refused are for messages: a {scheme} sink takes transform")
    return definition


def _check_transformation(definition: Definition) -> None:
    if definition.transform and definition.transform_function:
        raise ConfigError("a pipeline has one transformation: write either transform or transform_function")
    if definition.transform_function and not _FUNCTION.fullmatch(definition.transform_function):
        raise ConfigError("write the function of a transformation as module:function, e.g. shop.rules:totals")
    if definition.py_files and not definition.transform_function:
        raise ConfigError("py_files are for a function: write transform_function, too")
    for file in definition.py_files:
        if not file.endswith((".py", ".zip")):
            raise ConfigError(f"{file} in py_files is neither a module (.py) nor an archive of modules (.zip)")
        if not Path(file).is_file():
            raise ConfigError(f"there is no file {file}, which py_files names")


def _check_types(definition: Definition) -> None:
    for name, type_ in definition.types.items():
        if split_name(name, definition.tables) is None:
            raise ConfigError(f"write a type as TABLE.COLUMN=TYPE with a table of the pipeline, not {name[:64]!r}")
        declared_type(type_)


def _check_operation(definition: Definition) -> None:
    limits = {
        "trigger_s": (0.0, _DAY_S),
        "batch_changes": (0, 100_000_000),
        "batch_bytes": (0, 1 << 40),
        "maintain_every_s": (0.0, 365 * _DAY_S),
    }
    for name, (least, most) in limits.items():
        if not least <= getattr(definition, name) <= most:
            raise ConfigError(f"{name} is from {least:g} to {most:g}, not {getattr(definition, name):g}")
    if 0 < definition.maintain_every_s < _MAINTAIN_S_MIN:
        raise ConfigError(f"maintain_every_s is {_MAINTAIN_S_MIN:g} or more, or 0 for never")
    scheme = parse(definition.sink).scheme
    if definition.maintain_every_s and scheme not in _LAKES:
        raise ConfigError(f"maintain_every_s is for sinks {' and '.join(_LAKES)}: a {scheme} sink needs no maintenance")
    if (definition.partition_by or definition.properties) and scheme != "delta":
        raise ConfigError(f"partition_by and properties are for delta sinks, not {scheme}")
    for name in definition.partition_by:
        if split_name(name, definition.tables) is None:
            raise ConfigError(f"write partition_by as TABLE.COLUMN with a table of the pipeline, not {name[:64]!r}")


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
    return is_message_sink(definition) and not definition.is_transformed and not definition.types


def shape_of(definition: Definition) -> ShapeOptions:
    """Return what the sink makes of changes where it takes messages."""
    return ShapeOptions(filter=definition.filter, project=definition.project, envelope=definition.envelope)


def definition_of_file(path: Path, **others: str) -> Definition:
    """Read a definition from a TOML file, whose keys are the members of `Definition`; for what it lacks, of `others`.

    Paths in it are relative to its directory.

    Raises:
        ConfigError: It cannot be read, or something in it is wrong.
    """
    try:
        tree: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
        made = msgspec.convert({"name": path.stem, **others, **tree}, Definition)
        files = tuple(str(path.absolute().parent / file) for file in made.py_files)
        return check_definition(msgspec.structs.replace(made, py_files=files))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not a TOML file: {error}") from error
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path}: {error}") from error
