"""How long a CEL expression can take on one row, bounded before it runs. Pure.

An evaluation cannot be stopped once it has begun. But CEL has no loops besides comprehensions over lists, so its work
follows from the expression and from how large the row is: each part gets an upper bound of the size of its value and
of the time to compute it. The times are those that the library was measured to take, rounded up. `map` and `filter`
copy the list that they have made so far for each element, so they take the square of its length.
"""

from collections.abc import Mapping
from functools import cache

from msgspec import Struct

from tailrace.model.errors import InvalidPredicateError
from tailrace.subscription.cel.pattern import pattern_cost
from tailrace.subscription.cel.syntax import (
    CelCall,
    CelLiteral,
    CelName,
    CelOperation,
    Comprehension,
    Node,
    Select,
    Sequenced,
)

__all__ = ["ROW_NS_MAX", "CelCost", "cel_cost"]

ROW_NS_MAX = 50_000_000
"""Longest time that an expression may take on one row, by its bound."""

_SAMPLE_BYTES = 2048
_SAMPLE_ELEMENTS = 64
"""An expression that is too slow for a row of this size is refused at once."""

_BASE_NS = 10_000
_PART_NS = 200
_BYTE_NS = 2
_ELEMENT_NS = 300
_COPY_NS = 70
_POSITION_NS = 40
_SHORT_BYTES = 64
"""Longest result of a function that gives a number, a time or a type."""

_SAME_SIZE = frozenset({"string", "bytes", "dyn"})
_HUGE = 1 << 62


class _Bound(Struct, frozen=True):
    """Upper bounds of a value: its bytes and elements with all that is in it, and of a list its own elements.

    `item` bounds each element; None where only their sum is known, as for what a row holds.
    """

    size: int
    count: int = 0
    item: "_Bound | None" = None


class _Work(Struct, frozen=True):
    """The bound of a part's value, and of the time to compute it with all of its parts."""

    value: _Bound
    time_ns: int


class CelCost:
    """The bound of one expression's time, by the size of the row."""

    def __init__(self, node: Node, text: str) -> None:
        self._node = node
        self._text = text
        self._fits = cache(self._fits_rounded)

    def time_ns(self, row_bytes: int, row_elements: int) -> int:
        """Return the longest time for a row of this many bytes, and this many elements of lists and maps in it."""
        row = _Bound(row_bytes, row_elements)
        return min(
            _HUGE,
            _BASE_NS + _copied(row) + _ELEMENT_NS * row_elements + _Walk(self._text, row).work(self._node, {}).time_ns,
        )

    def fits(self, row_bytes: int, row_elements: int) -> bool:
        """Tell whether a row of that size is evaluated within the limit. Sizes are rounded up to a power of two."""
        return self._fits(row_bytes.bit_length(), row_elements.bit_length())

    def _fits_rounded(self, byte_bits: int, element_bits: int) -> bool:
        return self.time_ns(1 << byte_bits, 1 << element_bits) <= ROW_NS_MAX


def cel_cost(node: Node, text: str) -> CelCost:
    """Return the cost of an expression.

    Raises:
        InvalidPredicateError: It can take too long on a row of ordinary size, or matches a pattern that is no literal.
    """
    cost = CelCost(node, text)
    time_ns = cost.time_ns(_SAMPLE_BYTES, _SAMPLE_ELEMENTS)
    if time_ns > ROW_NS_MAX:
        reason = (
            f"the expression can take {_duration(time_ns)} for a row of {_SAMPLE_BYTES} bytes, "
            f"and {_duration(ROW_NS_MAX)} is the limit: "
            "shorten lists, chain fewer comprehensions, repeat less in patterns, or say it in a `where`"
        )
        raise InvalidPredicateError(reason, text=text, place=0)
    return cost


def _duration(time_ns: int) -> str:
    return f"{time_ns / 1e6:.0f} ms" if time_ns < 10**10 else "more than 10 s"


class _Walk:
    """Bounds the parts of one expression for one size of row."""

    def __init__(self, text: str, row: _Bound) -> None:
        self._text = text
        self._row = row

    def work(self, node: Node, bound: Mapping[str, _Bound]) -> _Work:
        """Return the work of a part; `bound` are the variables of comprehensions around it."""
        match node:
            case CelLiteral(text):
                size = 8 if text is None else len(text.encode(errors="replace")) + 8
                return _Work(_Bound(size), _PART_NS + size * _BYTE_NS)
            case CelName(name):
                return _Work(bound.get(name, self._row), _PART_NS)
            case Select(operand, index):
                return self._select(operand, index, bound)
            case CelOperation(operator, operands):
                return self._operation(operator, [self.work(operand, bound) for operand in operands])
            case CelCall():
                return self._call(node, bound)
            case Sequenced(parts, is_map):
                return self._sequenced([self.work(part, bound) for part in parts], is_map=is_map)
            case Comprehension():
                return self._comprehension(node, bound)

    def _select(self, operand: Node, index: Node | None, bound: Mapping[str, _Bound]) -> _Work:
        of = self.work(operand, bound)
        at_ns = 0 if index is None else self.work(index, bound).time_ns
        value = of.value if of.value.item is None else of.value.item
        return _Work(value, of.time_ns + at_ns + _PART_NS + _copied(value))

    def _operation(self, operator: str, works: list[_Work]) -> _Work:
        time_ns = _PART_NS + sum(work.time_ns for work in works)
        values = [work.value for work in works]
        match operator:
            case "+":
                joined = _joined(values)
                return _Work(joined, time_ns + len(works) * (joined.size * _BYTE_NS + joined.count * _COPY_NS))
            case "==" | "!=" | "<" | "<=" | ">" | ">=" | "in":
                looked = sum(value.size * _BYTE_NS + value.count * _ELEMENT_NS for value in values)
                return _Work(_Bound(8), time_ns + looked)
            case "?:":
                return _Work(_either(values[1:]), time_ns)
            case "&&" | "||":
                return _Work(_either(values), time_ns)  # an operand that is no boolean may be the result
            case _:
                return _Work(_Bound(_SHORT_BYTES), time_ns)

    def _call(self, node: CelCall, bound: Mapping[str, _Bound]) -> _Work:
        works = [self.work(argument, bound) for argument in node.arguments]
        size = sum(work.value.size for work in works)
        time_ns = 5 * _PART_NS + size * _BYTE_NS + sum(work.time_ns for work in works)
        if node.name == "matches":
            pattern = node.arguments[-1]
            if not isinstance(pattern, CelLiteral) or pattern.text is None:
                reason = "the pattern of matches() must be a literal, so that its work can be bounded"
                raise InvalidPredicateError(reason, text=self._text, place=node.place)
            cost = pattern_cost(pattern.text)
            time_ns += cost.compile_ns + size * cost.positions * _POSITION_NS
        if node.name in _SAME_SIZE and works:
            return _Work(_Bound(max(_SHORT_BYTES, size), size), time_ns)
        return _Work(_Bound(_SHORT_BYTES), time_ns)

    def _sequenced(self, works: list[_Work], *, is_map: bool) -> _Work:
        time_ns = _PART_NS + len(works) * _ELEMENT_NS + sum(work.time_ns for work in works)
        values = [work.value for work in works]
        size = len(works) + sum(value.size for value in values)
        if not works or is_map:
            return _Work(_Bound(size, len(works)), time_ns)
        return _Work(_Bound(size, len(works), _either(values)), time_ns)

    def _comprehension(self, node: Comprehension, bound: Mapping[str, _Bound]) -> _Work:
        over = self.work(node.over, bound)
        count = over.value.count
        item, rest = over.value.item, _Bound(1)
        if item is None:  # one element may be nearly the whole, and all others small: that is the worst case
            item = _Bound(over.value.size, count)
        else:
            rest = item
        largest = [self.work(body, {**bound, node.variable: item}) for body in node.bodies]
        others = [self.work(body, {**bound, node.variable: rest}) for body in node.bodies]
        once_ns = sum(work.time_ns for work in largest)
        each_ns = sum(work.time_ns for work in others) + 10 * _PART_NS
        time_ns = over.time_ns + once_ns + count * each_ns + _copied(over.value)
        if node.macro not in {"map", "filter"}:
            return _Work(_Bound(8), time_ns)
        time_ns += count * count // 2 * _COPY_NS
        if node.macro == "filter":
            return _Work(over.value, time_ns)
        made = largest[-1].value
        if over.value.item is None:
            size = made.size + count * (1 + others[-1].value.size)
            return _Work(_Bound(min(size, _HUGE), count), min(time_ns, _HUGE))
        return _Work(_Bound(min(count * (1 + made.size), _HUGE), count, made), min(time_ns, _HUGE))


def _copied(value: _Bound) -> int:
    """Return the time to copy a value: lists are shared, texts may be copied."""
    return value.count * _COPY_NS + value.size * _BYTE_NS // 2


def _either(values: list[_Bound]) -> _Bound:
    """Return a bound of a value that is one of these."""
    size, count = max(value.size for value in values), max(value.count for value in values)
    items = [value.item for value in values if value.count]
    known = [item for item in items if item is not None]
    return _Bound(size, count, _either(known) if known and len(known) == len(items) else None)


def _joined(values: list[_Bound]) -> _Bound:
    size, count = min(_HUGE, sum(value.size for value in values)), sum(value.count for value in values)
    items = [value.item for value in values if value.count]
    known = [item for item in items if item is not None]
    return _Bound(size, count, _either(known) if known and len(known) == len(items) else None)
