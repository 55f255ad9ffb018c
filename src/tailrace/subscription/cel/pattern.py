"""What a regular expression of CEL costs: compiling it, which the library does for each row, and matching it. Pure.

The library's engine takes time in proportion to the text, times the positions of the pattern in the worst case. Counted
repetitions multiply positions, and classes of Unicode are large, so a short pattern can be very slow.
"""

import re

from msgspec import Struct

__all__ = ["PatternCost", "pattern_cost"]

_LITERAL_NS = 400
_CLASS_NS = 60_000
_UNICODE_NS = 1_500_000
_BASE_NS = 20_000
_COUNT_MAX = 1 << 20
_DEPTH_MAX = 24
_UNREADABLE = 1 << 62
"""Stands for a pattern that is nested too deeply to be read."""

_FOLDED = 20
"""By how much matching letters in both cases makes a literal larger."""

_FLAGS = re.compile(r"\(\?([A-Za-z]+)[-:)]")
_ASCII_ESCAPES = frozenset("bBAztnrfvxuU")


class PatternCost(Struct, frozen=True):
    """Nanoseconds to compile a pattern, and the positions in it by which each byte of a text counts."""

    compile_ns: int
    positions: int

    def __add__(self, other: "PatternCost") -> "PatternCost":
        return PatternCost(self.compile_ns + other.compile_ns, self.positions + other.positions)

    def times(self, count: int) -> "PatternCost":
        """Return the cost of this many copies."""
        return PatternCost(self.compile_ns * count, self.positions * count)


_NOTHING = PatternCost(0, 0)


def pattern_cost(pattern: str) -> PatternCost:
    """Return what a pattern costs at most. One that is not a pattern at all costs what its characters would."""
    flags = "".join(_FLAGS.findall(pattern))
    if "x" in flags:  # comments could hide what follows them from this reader
        return PatternCost(_UNREADABLE, 1)
    cost = PatternCost(_BASE_NS, 1) + _Reader(pattern, _LITERAL_NS * (_FOLDED if "i" in flags else 1)).alternatives(0)
    return PatternCost(min(cost.compile_ns, _UNREADABLE), min(cost.positions, _UNREADABLE))


class _Reader:
    """One walk over a pattern. It reads more than the engine takes: that refuses what is no pattern."""

    def __init__(self, pattern: str, literal_ns: int) -> None:
        self._pattern = pattern
        self._literal_ns = literal_ns
        self._next = 0

    def alternatives(self, depth: int) -> PatternCost:
        """Read up to the end of a group, or of the pattern."""
        total = _NOTHING
        while self._next < len(self._pattern):
            character = self._take()
            if character == ")" and depth:
                return total
            total += self._repeated(self._item(character, depth))
        return total

    def _item(self, character: str, depth: int) -> PatternCost:
        match character:
            case "(":
                if depth >= _DEPTH_MAX:
                    self._next = len(self._pattern)
                    return PatternCost(_UNREADABLE, 1)
                return self.alternatives(depth + 1) + PatternCost(self._literal_ns, 1)
            case "[":
                return self._class()
            case "\\":
                return self._escape()
            case ".":
                return PatternCost(_CLASS_NS, 4)
            case _:
                return PatternCost(self._literal_ns if character.isascii() else 4 * self._literal_ns, 2)

    def _escape(self) -> PatternCost:
        letter = self._take()
        if letter in {"d", "D", "s", "S", "w", "W", "p", "P"}:
            return PatternCost(_UNICODE_NS, 8)
        return PatternCost(self._literal_ns if letter in _ASCII_ESCAPES or not letter.isalnum() else _CLASS_NS, 2)

    def _class(self) -> PatternCost:
        """Read a class in brackets; classes may be within one another."""
        negated = self._pattern[self._next : self._next + 1] == "^"
        depth, cost = 1, PatternCost(_CLASS_NS if negated else 2 * self._literal_ns, 4 if negated else 2)
        self._next += negated
        if self._pattern[self._next : self._next + 1] == "]":
            self._next += 1
        while depth and self._next < len(self._pattern):
            character = self._take()
            depth += (character == "[") - (character == "]")
            if character == "\\":
                cost += self._escape()
            elif not character.isascii():
                cost += PatternCost(_CLASS_NS // 4, 1)
            else:
                cost += PatternCost(self._literal_ns // 4, 0)
        return cost

    def _repeated(self, item: PatternCost) -> PatternCost:
        """Read what follows an item: counts multiply, several of them as well."""
        while self._next < len(self._pattern) and self._pattern[self._next] in "*+?{":
            sign = self._take()
            if sign != "{":
                continue
            end = self._pattern.find("}", self._next)
            if end < 0:
                return item
            numbers = [part.strip() for part in self._pattern[self._next : end].split(",")]
            counts = [
                min(int(part), _COUNT_MAX) for part in numbers if part.isascii() and part.isdigit() and len(part) < 10
            ]
            counts += [_COUNT_MAX for part in numbers if part.isdigit() and len(part) >= 10]
            self._next = end + 1
            item = item.times(max([1, *counts]) + (len(counts) < len(numbers)))
        return item

    def _take(self) -> str:
        character = self._pattern[self._next : self._next + 1]
        self._next += 1
        return character
