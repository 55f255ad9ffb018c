"""Arrays as PostgreSQL writes them: `{1,NULL,"a, b"}`, `[0:1]={a,b}`, `{{1,2},{3,4}}`. Pure."""

import re
from typing import TypeAlias

from tailrace.model.errors import InvalidValueError

__all__ = ["ArrayItem", "parse_array"]

ArrayItem: TypeAlias = "str | list[ArrayItem] | None"
"""An element as text, null, or the elements of a further dimension."""

_BOUNDS = re.compile(r"((?:\[[+-]?\d+:[+-]?\d+\])+)=")
_LOWER = re.compile(r"\[([+-]?\d+):")
_SPECIAL = re.compile(r'["{}\\]')
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)


def parse_array(text: str, delimiter: str = ",") -> tuple[list[ArrayItem], tuple[int, ...]]:
    """Return the elements of an array, and the lower bounds of its dimensions; no bounds where all are 1.

    Raises:
        InvalidValueError: The text is no array.
    """
    lower: tuple[int, ...] = ()
    begin = 0
    if text.startswith("["):
        bounds = _BOUNDS.match(text)
        if bounds is None:
            raise _malformed(text)
        lower = tuple(map(int, _LOWER.findall(bounds[1])))
        begin = bounds.end()
    if not text.startswith("{", begin) or not text.endswith("}"):
        raise _malformed(text)
    inner = text[begin + 1 : -1]
    if not _SPECIAL.search(inner):  # one dimension, nothing quoted
        plain: list[ArrayItem] = [_unquoted(one) for one in inner.split(delimiter)] if inner else []
        return plain, lower
    items, end = _items(text, begin + 1, delimiter)
    if end != len(text):
        raise _malformed(text)
    return items, lower


def _items(text: str, at: int, delimiter: str) -> tuple[list[ArrayItem], int]:
    """Return the elements from one brace to the closing one, and the place behind that."""
    items: list[ArrayItem] = []
    stops = re.compile(f"[{re.escape(delimiter)}}}]")
    if text.startswith("}", at):
        return items, at + 1
    while True:
        item: ArrayItem
        if text.startswith("{", at):
            item, at = _items(text, at + 1, delimiter)
        elif text.startswith('"', at):
            quoted = _QUOTED.match(text, at)
            if quoted is None:
                raise _malformed(text)
            item, at = _ESCAPED.sub(r"\1", quoted[1]), quoted.end()
        else:
            stop = stops.search(text, at)
            if stop is None:
                raise _malformed(text)
            item, at = _unquoted(text[at : stop.start()]), stop.start()
        items.append(item)
        if text.startswith(delimiter, at):
            at += len(delimiter)
        elif text.startswith("}", at):
            return items, at + 1
        else:
            raise _malformed(text)


def _unquoted(text: str) -> str | None:
    return None if text.upper() == "NULL" else _ESCAPED.sub(r"\1", text) if "\\" in text else text


def _malformed(text: str) -> InvalidValueError:
    return InvalidValueError(f"{text[:40]!r} is no array of PostgreSQL")
