"""Sizes and durations as people write them."""

import re

from tailrace.model.errors import ConfigError

__all__ = ["parse_duration_s", "parse_size_bytes"]

_SIZE_UNITS = {"": 1, "b": 1} | {
    unit: base**power
    for power, letter in enumerate("kmgt", start=1)
    for unit, base in ((letter, 1024), (f"{letter}b", 1000), (f"{letter}ib", 1024))
}
_DURATION_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def parse_size_bytes(text: str | int) -> int | None:
    """Return the bytes of a size such as `500MB`, `4GiB` or `65536`; None for `none`.

    Raises:
        ConfigError: It is not a size, or not more than nothing.
    """
    if isinstance(text, str) and text.strip().lower() == "none":
        return None
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", str(text))
    unit = _SIZE_UNITS.get(match[2].lower()) if match else None
    if not match or unit is None or float(match[1]) <= 0:
        raise ConfigError(f"{text!r} is not a size: write e.g. 500MB, 4GiB or none")
    return int(float(match[1]) * unit)


def parse_duration_s(text: str) -> float | None:
    """Return the seconds of a duration such as `45s`, `12h` or `7d`; None for `none`.

    Raises:
        ConfigError: It is not a duration, or not more than nothing.
    """
    if text.strip().lower() == "none":
        return None
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([smhd])\s*", text.lower())
    if not match or float(match[1]) <= 0:
        raise ConfigError(f"{text!r} is not a duration: write e.g. 45s, 90m, 12h, 7d or none")
    return float(match[1]) * _DURATION_UNITS[match[2]]
