"""A file of configuration: read, and what is wrong with it told. Which keys there are is told by whoever has them."""

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, structs

from tailrace.model.errors import ConfigError

__all__ = ["problem_of", "read_file"]

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_UNKNOWN = re.compile(r"Object contains unknown field `(?P<key>.*?)`(?: - at `\$\.?(?P<place>.*)`)?")


def read_file(file: Path, environment: Mapping[str, str]) -> dict[str, Any]:
    """Return what a TOML file says, `${NAME}` in its texts filled in from the environment.

    Raises:
        ConfigError: It cannot be read, is no TOML, or names a variable that is not set.
    """
    try:
        tree = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} is not a TOML file: {error}") from error
    sinks = {"sinks": tree.pop("sinks")} if "sinks" in tree else {}  # their secrets are filled in when they are opened
    filled = _interpolate(tree, environment, str(file))
    assert isinstance(filled, dict)
    return {**filled, **sinks}


def _interpolate(node: Any, environment: Mapping[str, str], where: str) -> Any:
    """Return the tree with `${NAME}` in its strings replaced from the environment."""
    match node:
        case dict():
            return {key: _interpolate(value, environment, f"{where}: {key}") for key, value in node.items()}
        case list():
            return [_interpolate(value, environment, where) for value in node]
        case str():

            def fill(found: re.Match[str]) -> str:
                if found[1] not in environment:
                    raise ConfigError(f"{where}: environment variable {found[1]} is not set")
                return environment[found[1]]

            return _VARIABLE.sub(fill, node)
        case _:
            return node


def problem_of(error: msgspec.ValidationError, kind: type[Struct]) -> str:
    """Return what is wrong with a configuration; of a key that there is not, also which ones there are."""
    unknown = _UNKNOWN.fullmatch(str(error))
    if unknown is None:
        return str(error)
    place = unknown["place"] or ""
    known = _keys(place, kind)
    named = f"unknown key '{place}{'.' if place else ''}{unknown['key']}'"
    return f"{named}; known are {', '.join(known)}" if known else named


def _keys(place: str, kind: type[Struct]) -> list[str]:
    """Return the keys that a table of the configuration may have; none where it is not known which table it is."""
    table: Any = kind
    for part in filter(None, place.split(".")):
        table = next((one.type for one in structs.fields(table) if one.encode_name == part), None)
        if not isinstance(table, type) or not issubclass(table, Struct):
            return []
    return sorted(one.encode_name for one in structs.fields(table))
