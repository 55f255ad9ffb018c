"""Durations and sizes as people write them on a command line."""

import re
from typing import Any

import click

__all__ = ["DURATION", "SIZE", "Units"]

_FORM = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)")


class Units(click.ParamType[float]):
    """A number with a unit, as a number of the smallest whole thing."""

    def __init__(self, name: str, units: dict[str, float], example: str) -> None:
        self.name = name
        self._units = units
        self._example = example

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number that a text stands for."""
        if not isinstance(value, str):
            return float(value)
        match = _FORM.fullmatch(value.strip())
        unit = None if match is None else self._units.get(match[2].lower())
        if match is None or unit is None:
            self.fail(f"write e.g. {self._example}, not {value!r}", param, ctx)
        return float(match[1]) * unit


DURATION = Units("duration", {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}, "10s, 5m, 12h or 1d")
SIZE = Units(
    "size", {"": 1.0, "b": 1.0, "kb": 1e3, "mb": 1e6, "gb": 1e9, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}, "64MB"
)
