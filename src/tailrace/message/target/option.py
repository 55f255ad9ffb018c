"""Options of targets: what stands behind the question mark of their URLs. Pure."""

from collections.abc import Mapping

from tailrace.model.errors import ConfigError

__all__ = ["choice_of", "number_of", "seconds_of", "switch_of"]


def number_of(
    options: Mapping[str, str], name: str, default: int | None = None, *, least: int = 0, most: int = 2**63 - 1
) -> int:
    """Return an option that is a whole number.

    Raises:
        ConfigError: It is none, too small or too large. This shows no value: others may be secrets.
    """
    text = options.get(name)
    if text is None and default is not None:
        return default
    if text is None or not (text.isascii() and text.isdecimal()) or not least <= int(text) <= most:
        raise ConfigError(f"the sink's option {name} is a whole number from {least} to {most}")
    return int(text)


def seconds_of(options: Mapping[str, str], name: str, default: float) -> float:
    """Return an option that is a length of time, at most a day."""
    try:
        value = float(options.get(name, default))
    except ValueError:
        value = 0.0
    if not 0 < value <= 86_400:
        raise ConfigError(f"the sink's option {name} is a number of seconds above 0")
    return value


def choice_of(options: Mapping[str, str], name: str, *values: str) -> str:
    """Return an option that is one of some words; the first where it is missing."""
    value = options.get(name, values[0])
    if value not in values:
        raise ConfigError(f"the sink's option {name} is one of {', '.join(values)}")
    return value


def switch_of(options: Mapping[str, str], name: str) -> bool:
    """Return an option that is true or false; false where it is missing."""
    return choice_of(options, name, "false", "true") == "true"
