"""A configuration file: reading it, with errors that name the key. The keys are declared by their owners."""

import re
import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, structs

from tailrace.model.errors import ConfigError

__all__ = ["SettingProblem", "line_of", "located", "problem_of", "read_file"]

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_UNKNOWN = re.compile(r"Object contains unknown field `(?P<key>.*?)`(?: - at `\$\.?(?P<place>.*)`)?")

_TYPES = re.compile(r"Expected `(.*?)`, got `.*?`")
_WORDS = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "str": "a text",
    "array": "a list",
    "object": "a table",
}
_HEADER = re.compile(r"\s*\[([^\[\]]+)\]\s*(?:#.*)?")
_KEY = re.compile(r"""\s*([A-Za-z0-9_."' -]+?)\s*=""")


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


class SettingProblem(Struct, frozen=True):
    """What is wrong with a configuration: the key, by its path, and why."""

    path: str
    reason: str
    unknown: bool = False
    """Whether there is no such key."""


def problem_of(error: msgspec.ValidationError, kind: type[Struct], tree: Mapping[str, Any]) -> SettingProblem:
    """Return what is wrong with `tree`; of a key that there is not, also which ones there are."""
    unknown = _UNKNOWN.fullmatch(str(error))
    if unknown is None:
        return _wrong_value(str(error), tree)
    place = unknown["place"] or ""
    known = _keys(place, kind)
    path = f"{place}{'.' if place else ''}{unknown['key']}"
    near = get_close_matches(unknown["key"], known, 1)
    meant = f"; did you mean {near[0]!r}?" if near else ""
    return SettingProblem(path, f"{meant}; known are {', '.join(known)}" if known else "", unknown=True)


def located(problem: SettingProblem, origins: Mapping[str, str], file: Path | None) -> str:
    """Return a problem with the place where it can be corrected.

    `origins` has the variable or flag of each path that came from one, with all below it; others came from the file.
    """
    if problem.path in origins:
        return f"{origins[problem.path]}: {problem.reason}"
    above = next((origins[path] for path in origins if problem.path.startswith(f"{path}.")), None)
    if above is not None:
        return f"{above}: {problem.path}: {problem.reason}"
    said = f"{problem.path}: {problem.reason}" if problem.path else problem.reason
    if problem.unknown:
        said = f"unknown key {problem.path!r}{problem.reason}"
    if file is None:
        return said
    line = line_of(file.read_text(encoding="utf-8"), problem.path)
    return f"{file}, line {line}: {said}" if line else f"{file}: {said}"


def line_of(text: str, path: str) -> int | None:
    """Return the line of a TOML text, from 1, that sets a path or begins the table of that name; None if none does."""
    table = ""
    for number, line in enumerate(text.splitlines(), start=1):
        header = _HEADER.fullmatch(line)
        key = _KEY.match(line)
        if header is not None:
            table = found = _plain(header[1])
        elif key is not None:
            found = ".".join(filter(None, (table, _plain(key[1]))))
        else:
            continue
        if found == path:
            return number
    return None


def _plain(key: str) -> str:
    """Return a dotted key without quotes and spaces."""
    return ".".join(part.strip().strip("\"'") for part in key.split("."))


def _wrong_value(said: str, tree: Mapping[str, Any]) -> SettingProblem:
    """Return the problem of a value that is not of its type, in plain words."""
    what, _, place = said.partition(" - at `$.")
    path = place.rstrip("`")
    wrong = _TYPES.match(what)
    if wrong is None:
        return SettingProblem(path, what.replace("`", "'"))
    wanted = " or ".join(_WORDS.get(kind, kind) for kind in wrong[1].split(" | ") if kind != "null")
    given: Any = tree
    for part in path.split("."):
        given = given.get(part) if isinstance(given, Mapping) else None
    shown = repr(given) if isinstance(given, str | int | float) and not isinstance(given, bool) else "this"
    return SettingProblem(path, f"{shown} is not {wanted}")


def _keys(place: str, kind: type[Struct]) -> list[str]:
    """Return the keys that a table of the configuration may have; none where it is not known which table it is."""
    table: Any = kind
    for part in filter(None, place.split(".")):
        table = next((one.type for one in structs.fields(table) if one.encode_name == part), None)
        if not isinstance(table, type) or not issubclass(table, Struct):
            return []
    return sorted(one.encode_name for one in structs.fields(table))
