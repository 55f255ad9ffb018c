"""CEL expressions as a tree, as far as their work depends on it. Pure.

The library that evaluates CEL gives no tree away. This reads the grammar of the language (cel-spec, chapter Syntax), so
that `cel_cost` can bound the work before anything runs. What cannot be read here is refused: an expression that this
module and the library read differently would escape the bounds.
"""

import re
from collections.abc import Sequence

from msgspec import Struct

from tailrace.model.errors import InvalidPredicateError

__all__ = [
    "DEPTH_MAX",
    "MACROS",
    "PARTS_MAX",
    "CelCall",
    "CelLiteral",
    "CelName",
    "CelOperation",
    "CelToken",
    "Comprehension",
    "Node",
    "Select",
    "Sequenced",
    "parse_cel",
]

PARTS_MAX = 2048
"""Most parts of one expression: literals, names, operators, calls. Parsing and compiling take time for each."""

DEPTH_MAX = 48
"""Most levels within one another: brackets, calls, members, prefixes. A chain of one operator is one level."""

MACROS = frozenset({"all", "exists", "exists_one", "map", "filter"})

_RELATIONS = frozenset({"==", "!=", "<", "<=", ">", ">=", "in"})
_LEVELS: tuple[frozenset[str], ...] = (
    frozenset({"||"}),
    frozenset({"&&"}),
    _RELATIONS,
    frozenset({"+", "-"}),
    frozenset({"*", "/", "%"}),
)
"""Operators of two operands from the loosest to the tightest."""

_TRIPLE_LENGTH = 6
_CHARACTER_MAX = 0x10FFFF


class CelToken(Struct, frozen=True):
    """A token: its kind (`text`, `name`, `number`, `sign` or `end`), how it is written, and where it begins."""

    kind: str
    text: str
    place: int


class CelLiteral(Struct, frozen=True):
    """A number, a text, bytes, a boolean or null. `text` is the value of a text or of bytes."""

    text: str | None
    place: int


class CelName(Struct, frozen=True):
    """A variable or a type."""

    name: str
    place: int


class Select(Struct, frozen=True):
    """A field of a map, or what stands at an index."""

    operand: "Node"
    index: "Node | None"
    field: str
    place: int


class CelOperation(Struct, frozen=True):
    """An operator with its operands; `?:` has three. A chain of operators that bind alike is one, by its first name."""

    operator: str
    operands: tuple["Node", ...]
    place: int


class CelCall(Struct, frozen=True):
    """A function; its target, if it has one, is the first argument."""

    name: str
    arguments: tuple["Node", ...]
    place: int


class Sequenced(Struct, frozen=True):
    """A list, or a map as the list of its keys and values."""

    parts: tuple["Node", ...]
    is_map: bool
    place: int


class Comprehension(Struct, frozen=True):
    """A macro over a list or a map: `variable` stands for each element in `bodies`."""

    macro: str
    over: "Node"
    variable: str
    bodies: tuple["Node", ...]
    place: int


Node = CelLiteral | CelName | Select | CelOperation | CelCall | Sequenced | Comprehension


def parse_cel(text: str, tokens: Sequence[CelToken]) -> Node:
    """Return the tree of an expression.

    Raises:
        InvalidPredicateError: It cannot be read, or is larger or deeper than is allowed.
    """
    parser = _Parser(text, tokens)
    node = parser.expression()
    if parser.peek().kind != "end":
        raise parser.unexpected()
    return node


class _Parser:
    """Recursive descent, one method per rule."""

    def __init__(self, text: str, tokens: Sequence[CelToken]) -> None:
        self._text = text
        self._tokens = tokens
        self._next = 0
        self._depth = 0
        self._within = False  # a comprehension's body
        self._heights: dict[int, int] = {}
        self._made_nodes: list[Node] = []  # so that no other object takes the id of one
        self._end = CelToken("end", "", len(text))

    def peek(self) -> CelToken:
        return self._tokens[self._next] if self._next < len(self._tokens) else self._end

    def expression(self) -> Node:
        self._deeper(1)
        condition = self._binary(0)
        mark = self.peek()
        if self._accept("?"):
            then = self._binary(0)
            self._expect(":")
            condition = self._made(CelOperation("?:", (condition, then, self.expression()), mark.place))
        self._deeper(-1)
        return condition

    def unexpected(self) -> InvalidPredicateError:
        token = self.peek()
        return self._error(
            "the expression ends too early" if token.kind == "end" else f"{token.text!r} is not expected here"
        )

    def _binary(self, level: int) -> Node:
        if level == len(_LEVELS):
            return self._unary()
        operands, first = [self._binary(level + 1)], self.peek()
        while self.peek().kind in {"sign", "name"} and self.peek().text in _LEVELS[level]:
            operator = self._take().text
            if operator == "+" and first.text == "-":  # the one of them whose result can be large
                first = CelToken("sign", "+", first.place)
            operands.append(self._binary(level + 1))
        return operands[0] if len(operands) == 1 else self._made(CelOperation(first.text, tuple(operands), first.place))

    def _unary(self) -> Node:
        token = self.peek()
        if token.kind == "sign" and token.text in {"!", "-"}:
            self._take()
            self._deeper(1)
            node = self._made(CelOperation(f"{token.text}x", (self._unary(),), token.place))
            self._deeper(-1)
            return node
        return self._member(self._primary())

    def _member(self, node: Node) -> Node:
        while True:
            token = self.peek()
            if self._accept("."):
                name = self._name()
                if self._accept("("):
                    node = self._method(node, name)
                else:
                    node = self._made(Select(node, None, name.text, name.place))
            elif self._accept("["):
                index = self.expression()
                self._expect("]")
                node = self._made(Select(node, index, "", token.place))
            else:
                return node

    def _method(self, target: Node, name: CelToken) -> Node:
        if name.text not in MACROS:
            return self._made(CelCall(name.text, (target, *self._arguments(")")), name.place))
        if self._within:
            reason = f"{name.text}() within another comprehension is not allowed"
            raise InvalidPredicateError(reason, text=self._text, place=name.place)
        variable = self._name()
        bodies = []
        self._within = True
        while self._accept(","):
            bodies.append(self.expression())
        self._within = False
        self._expect(")")
        if not 1 <= len(bodies) <= (2 if name.text == "map" else 1):
            raise InvalidPredicateError(
                f"{name.text}() takes a variable and an expression", text=self._text, place=name.place
            )
        return self._made(Comprehension(name.text, target, variable.text, tuple(bodies), name.place))

    def _primary(self) -> Node:
        token = self.peek()
        match token.kind, token.text:
            case ("text", _):
                self._take()
                return self._made(_text_literal(token))
            case ("number", _) | ("name", "true" | "false" | "null"):
                self._take()
                return self._made(CelLiteral(None, token.place))
            case ("name", "in") | ("end", _):
                raise self.unexpected()
            case ("name", _):
                self._take()
                if self._accept("("):
                    return self._made(CelCall(token.text, self._arguments(")"), token.place))
                return self._made(CelName(token.text, token.place))
            case ("sign", "("):
                self._take()
                inner = self.expression()
                self._expect(")")
                return inner
            case ("sign", "["):
                self._take()
                return self._made(Sequenced(self._arguments("]"), False, token.place))
            case ("sign", "{"):
                self._take()
                return self._made(Sequenced(self._entries(), True, token.place))
            case _:
                raise self.unexpected()

    def _arguments(self, end: str) -> tuple[Node, ...]:
        nodes: list[Node] = []
        while not self._accept(end):
            if nodes:
                self._expect(",")
                if end == "]" and self._accept(end):  # a list may end with a comma
                    break
            nodes.append(self.expression())
        return tuple(nodes)

    def _entries(self) -> tuple[Node, ...]:
        nodes: list[Node] = []
        while not self._accept("}"):
            if nodes:
                self._expect(",")
                if self._accept("}"):
                    break
            nodes.append(self.expression())
            self._expect(":")
            nodes.append(self.expression())
        return tuple(nodes)

    def _made(self, node: Node) -> Node:
        height = self._heights[id(node)] = 1 + max((self._heights[id(part)] for part in _parts_of(node)), default=0)
        self._made_nodes.append(node)
        if len(self._made_nodes) > PARTS_MAX:
            raise self._error(f"a CEL expression has at most {PARTS_MAX} parts: write long lists as a `where` with IN")
        self._bound_depth(height)
        return node

    def _deeper(self, by: int) -> None:
        self._depth += by
        self._bound_depth(self._depth)

    def _bound_depth(self, depth: int) -> None:
        if depth > DEPTH_MAX:
            raise self._error(f"a CEL expression is at most {DEPTH_MAX} levels deep, chained calls included")

    def _name(self) -> CelToken:
        token = self._take()
        if token.kind != "name":
            raise InvalidPredicateError("a name is expected here", text=self._text, place=token.place)
        return token

    def _take(self) -> CelToken:
        token = self.peek()
        self._next += 1
        return token

    def _accept(self, sign: str) -> bool:
        if self.peek().kind != "sign" or self.peek().text != sign:
            return False
        self._next += 1
        return True

    def _expect(self, sign: str) -> None:
        if not self._accept(sign):
            raise self._error(f"expected {sign}")

    def _error(self, reason: str) -> InvalidPredicateError:
        return InvalidPredicateError(reason, text=self._text, place=self.peek().place)


def _parts_of(node: Node) -> tuple[Node, ...]:
    match node:
        case Select(operand, index):
            return (operand,) if index is None else (operand, index)
        case CelOperation(_, parts) | CelCall(_, parts) | Sequenced(parts):
            return parts
        case Comprehension(_, over, _, bodies):
            return (over, *bodies)
        case CelLiteral() | CelName():
            return ()


_ESCAPE = re.compile(r"\\(?:[xX]([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-3][0-7]{2})|(.))", re.DOTALL)
_SIMPLE = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


def _text_literal(token: CelToken) -> CelLiteral:
    written = token.text
    prefix = len(written) - len(written.lstrip("rRbB"))
    quotes = 3 if len(written) - prefix >= _TRIPLE_LENGTH and written[prefix : prefix + 3] in {'"""', "'''"} else 1
    text = written[prefix + quotes : len(written) - quotes]
    return CelLiteral(text if "r" in written[:prefix].lower() else _ESCAPE.sub(_unescaped, text), token.place)


def _unescaped(found: re.Match[str]) -> str:
    *hexadecimal, octal, simple = found.groups()
    if simple is not None:
        return _SIMPLE.get(simple, simple)
    if octal is not None:
        return chr(int(octal, 8))
    number = int(next(digits for digits in hexadecimal if digits is not None), 16)
    return chr(number) if number <= _CHARACTER_MAX else "?"
