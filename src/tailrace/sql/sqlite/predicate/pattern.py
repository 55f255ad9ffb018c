"""LIKE and GLOB as SQLite matches them. Pure.

A pattern is cut at its wildcards for any run of characters into pieces of fixed width. The first piece must stand at
the beginning, the last at the end, the others are looked for from left to right, each as early as it can be found: so
a match takes time in proportion to the text, times the width of a piece that has wildcards for one character.
"""

import re
from collections.abc import Callable
from functools import lru_cache

from msgspec import Struct

from tailrace.model.errors import PredicateError
from tailrace.sql.predicate import SqlValue
from tailrace.sql.sqlite.affinity import small_letters
from tailrace.sql.sqlite.predicate.value import to_text

__all__ = ["Matcher", "glob", "glob_matcher", "like", "like_matcher", "match_value"]

Matcher = Callable[[str], bool]
"""Tells whether a text matches one pattern."""

_PATTERN_BYTES_MAX = 50_000
"""SQLite refuses longer patterns."""

_PATTERNS_KEPT = 256

_DYNAMIC_BYTES_MAX = 4096
_DYNAMIC_STEPS_MAX = 1 << 22
"""Bounds of a pattern that comes out of the row: its own length, and that times the length of the text."""


class _Wildcard(Struct, frozen=True):
    """Part of a pattern that stands for one of several characters, as a regular expression."""

    expression: str


_ANY = _Wildcard(".")

_Piece = list[str | _Wildcard]
"""What stands between two wildcards for any run of characters: one part for each character."""


@lru_cache(_PATTERNS_KEPT)
def like_matcher(pattern: str, escape: str = "") -> Matcher:
    """Return the matcher of a LIKE pattern. Letters of ASCII match in both cases, other letters only themselves."""
    characters = iter(_bounded(pattern))
    pieces: list[_Piece] = [[]]
    for character in characters:
        if escape and character == escape:
            following = next(characters, None)
            if following is None:
                return _never
            pieces[-1].append(small_letters(following))
        elif character == "%":
            pieces.append([])
        else:
            pieces[-1].append(_ANY if character == "_" else small_letters(character))
    return _assemble(pieces, small_letters)


@lru_cache(_PATTERNS_KEPT)
def glob_matcher(pattern: str) -> Matcher:
    """Return the matcher of a GLOB pattern: `*`, `?` and sets of characters in brackets."""
    pattern = _bounded(pattern)
    pieces: list[_Piece] = [[]]
    place = 0
    while place < len(pattern):
        character = pattern[place]
        place += 1
        if character == "*":
            pieces.append([])
        elif character == "?":
            pieces[-1].append(_ANY)
        elif character == "[":
            expression, place = _set(pattern, place)
            if not expression:
                return _never
            pieces[-1].append(_Wildcard(expression))
        else:
            pieces[-1].append(character)
    return _assemble(pieces, None)


def match_value(matcher: Matcher, value: SqlValue) -> bool | None:
    """Return whether a value matches; None for NULL. A blob matches nothing."""
    if value is None:
        return None
    return not isinstance(value, bytes) and matcher(to_text(value))


def like(value: SqlValue, pattern: SqlValue, escape: str = "") -> bool | None:
    """Return whether a value is like a pattern; None if either is NULL."""
    if isinstance(pattern, bytes) or isinstance(value, bytes):
        return False
    if value is None or pattern is None:
        return None
    return like_matcher(_dynamic(pattern, value), escape)(to_text(value))


def glob(value: SqlValue, pattern: SqlValue) -> bool | None:
    """Return whether a value matches a GLOB pattern; None if either is NULL."""
    if isinstance(pattern, bytes) or isinstance(value, bytes):
        return False
    if value is None or pattern is None:
        return None
    return glob_matcher(_dynamic(pattern, value))(to_text(value))


def _dynamic(pattern: SqlValue, value: SqlValue) -> str:
    """Return a pattern that is known only now, if matching it is not too much work.

    Raises:
        PredicateError: It is.
    """
    assert pattern is not None
    assert value is not None
    text = to_text(pattern)
    if len(text.encode(errors="surrogatepass")) > _DYNAMIC_BYTES_MAX:
        raise PredicateError(f"a pattern out of a row is longer than {_DYNAMIC_BYTES_MAX} bytes")
    if len(text) * len(to_text(value)) > _DYNAMIC_STEPS_MAX:
        raise PredicateError("a text is too long for a pattern out of a row: write the pattern as a literal")
    return text


def _bounded(pattern: str) -> str:
    if len(pattern.encode()) > _PATTERN_BYTES_MAX:
        raise PredicateError(f"a pattern is longer than {_PATTERN_BYTES_MAX} bytes")
    return pattern.partition("\0")[0]


def _never(_: str) -> bool:
    return False


def _set(pattern: str, place: int) -> tuple[str, int]:
    """Read a set of characters after its bracket; return its expression and the place after it.

    The expression is empty when the set is not closed.
    """
    negated = pattern[place : place + 1] == "^"
    place += negated
    members: list[str] = []
    previous = ""
    if pattern[place : place + 1] == "]":
        members.append(r"\]")
        place += 1
    while place < len(pattern) and pattern[place] != "]":
        character = pattern[place]
        following = pattern[place + 1 : place + 2]
        if character == "-" and previous and following not in {"", "]"}:
            if previous <= following:
                members.append(f"{re.escape(previous)}-{re.escape(following)}")
            previous = ""
            place += 2
        else:
            members.append(re.escape(character))
            previous = character
            place += 1
    if place >= len(pattern):
        return "", place
    if not members:
        return ("." if negated else "(?!)"), place + 1
    return f"[{'^' if negated else ''}{''.join(members)}]", place + 1


def _assemble(pieces: list[_Piece], fold: Callable[[str], str] | None) -> Matcher:
    """Return a matcher of pieces with anything between them."""
    if len(pieces) <= 2 and all(isinstance(part, str) for piece in pieces for part in piece):
        return _literal_ends(["".join(map(str, piece)) for piece in pieces], fold)
    compiled = [re.compile("".join(map(_expression, piece)), re.DOTALL) for piece in pieces]
    if len(pieces) == 1:
        whole = compiled[0].fullmatch
        return lambda text: whole(_prepared(text, fold)) is not None
    widths = [len(piece) for piece in pieces]
    first, *middle, last = compiled
    middle = [expression for expression, width in zip(middle, widths[1:-1], strict=True) if width]
    last_width = widths[-1]

    def matches(text: str) -> bool:
        text = _prepared(text, fold)
        found = first.match(text)
        if found is None:
            return False
        place = found.end()
        for expression in middle:
            found = expression.search(text, place)
            if found is None:
                return False
            place = found.end()
        begin = len(text) - last_width
        return begin >= place and last.match(text, begin) is not None

    return matches


def _literal_ends(pieces: list[str], fold: Callable[[str], str] | None) -> Matcher:
    """Return a matcher of a whole text, or of its two ends, without wildcards in them."""
    head, tail = pieces[0], pieces[-1]
    first, last = len(head), len(tail)
    exact = len(pieces) == 1

    def matches(text: str) -> bool:
        if "\0" in text:
            text = text.partition("\0")[0]
        length = len(text)
        if length != first if exact else length < first + last:
            return False
        begin, end = text[:first], "" if exact else text[length - last :]
        return (begin if fold is None else fold(begin)) == head and (
            exact or not last or (end if fold is None else fold(end)) == tail
        )

    return matches


def _expression(part: "str | _Wildcard") -> str:
    return re.escape(part) if isinstance(part, str) else part.expression


def _prepared(text: str, fold: Callable[[str], str] | None) -> str:
    if "\0" in text:
        text = text.partition("\0")[0]
    return text if fold is None else fold(text)
