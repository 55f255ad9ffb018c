"""What can be said of a CEL expression from its text alone: the columns it reads, and names that mean nothing. Pure.

The library that evaluates CEL parses but does not check. This reads the tokens, so that an unknown column, variable or
function is refused when someone subscribes, and not when the first change comes.
"""

import re
from collections.abc import Sequence

from msgspec import Struct

from tailrace.model.errors import InvalidPredicateError
from tailrace.model.table import TableSchema
from tailrace.subscription.cel.syntax import MACROS, CelToken, Node, parse_cel

__all__ = ["FUNCTIONS", "IMAGES", "TEXT_CHARACTERS_MAX", "VARIABLES", "CelText", "read_cel"]

TEXT_CHARACTERS_MAX = 16_384
"""Longest CEL expression."""

IMAGES = frozenset({"before", "after", "row"})
VARIABLES = IMAGES | {"op", "table"}

_PARTS = (
    "FullYear",
    "Month",
    "Date",
    "DayOfMonth",
    "DayOfWeek",
    "DayOfYear",
    "Hours",
    "Minutes",
    "Seconds",
    "Milliseconds",
)

FUNCTIONS = frozenset(
    {"size", "int", "uint", "double", "string", "bytes", "timestamp", "duration", "type", "dyn", "has"}
    | {"contains", "startsWith", "endsWith", "matches"}
    | {f"get{part}" for part in _PARTS}
)

_WORDS = frozenset({"true", "false", "null", "in"})
_TYPES = frozenset({"int", "uint", "double", "bool", "string", "bytes", "list", "map", "null_type", "type"})

_TOKEN = re.compile(
    r"""(?P<space>\s+|//[^\n]*)
    |(?P<raw>[bB]?[rR](?:'''.*?'''|\"{3}.*?\"{3}|'[^'\n\r]*'|"[^"\n\r]*"))
    |(?P<text>[bB]?(?:'''(?:[^\\]|\\.)*?'''|\"{3}(?:[^\\]|\\.)*?\"{3}|'(?:[^'\\\n\r]|\\.)*'|"(?:[^"\\\n\r]|\\.)*"))
    |(?P<name>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<number>(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[0-9A-Za-z_]*)
    |(?P<sign>==|!=|<=|>=|&&|\|\||.)""",
    re.DOTALL | re.VERBOSE,
)

_KINDS = {"raw": "text"}


class CelText(Struct, frozen=True):
    """What an expression uses, and its tree. `whole` tells that it uses an image as a whole, so all columns."""

    variables: frozenset[str]
    columns: frozenset[str]
    whole: bool
    canonical: str
    tree: Node


def read_cel(text: str, schema: TableSchema) -> CelText:
    """Return what an expression uses.

    Raises:
        InvalidPredicateError: It cannot be read, is too large, nests comprehensions, or has a name that means nothing.
    """
    if len(text) > TEXT_CHARACTERS_MAX:
        reason = f"a CEL expression has at most {TEXT_CHARACTERS_MAX} characters; this has {len(text)}"
        raise InvalidPredicateError(reason, text="", place=0)
    tokens = [
        CelToken(_KINDS.get(found.lastgroup or "", found.lastgroup or ""), found[0], found.start())
        for found in _TOKEN.finditer(text)
        if found.lastgroup != "space"
    ]
    tree = parse_cel(text, tokens)
    reader = _Reader(text, tokens, schema)
    reader.run()
    used = frozenset(reader.variables)
    canonical = " ".join(token.text for token in tokens)
    return CelText(used, frozenset(reader.columns), reader.whole, canonical, tree)


class _Reader:
    """One walk over the tokens."""

    def __init__(self, text: str, tokens: Sequence[CelToken], schema: TableSchema) -> None:
        self._text = text
        self._tokens = tokens
        self._schema = schema
        self._bound: set[str] = set()
        self.variables: set[str] = set()
        self.columns: set[str] = set()
        self.whole = False

    def run(self) -> None:
        self._bind()
        for place, token in enumerate(self._tokens):
            if token.kind != "name" or self._sign(place - 1) == ".":
                if token.kind == "name" and self._sign(place + 1) == "(":
                    self._function(token)
            elif self._sign(place + 1) == "(":
                self._function(token)
            elif token.text not in _WORDS and token.text not in self._bound:
                self._variable(place)

    def _bind(self) -> None:
        """Find the variables of comprehensions."""
        for place, token in enumerate(self._tokens):
            if token.text in MACROS and self._sign(place - 1) == "." and self._sign(place + 1) == "(":
                self._bound.add(self._tokens[place + 2].text)

    def _function(self, token: CelToken) -> None:
        if token.text not in FUNCTIONS and token.text not in MACROS:
            known = ", ".join(sorted(FUNCTIONS | MACROS))
            raise self._error(f"unknown function {token.text}(); there are {known}", token)

    def _variable(self, place: int) -> None:
        token = self._tokens[place]
        if token.text in VARIABLES:
            self.variables.add(token.text)
            if token.text in IMAGES:
                self._image(place)
        elif token.text not in _TYPES:
            raise self._error(f"unknown variable {token.text}; there are {', '.join(sorted(VARIABLES))}", token)

    def _image(self, place: int) -> None:
        """Note which column of an image is used, after `row`, `before` or `after`."""
        following = self._sign(place + 1)
        column = self._tokens[place + 2] if place + 2 < len(self._tokens) else None
        if following == "." and column is not None and column.kind == "name":
            self._column(column.text, column)
        elif following == "[" and column is not None and column.kind == "text" and self._sign(place + 3) == "]":
            if "\\" in column.text or column.text[0] not in "'\"" or column.text[:3] in {"'''", '"""'}:
                self.whole = True
            else:
                self._column(column.text[1:-1], column)
        elif following not in {"==", "!="} or column is None or column.text != "null":
            self.whole = True

    def _column(self, name: str, token: CelToken) -> None:
        if self._schema.column(name) is None:
            known = ", ".join(column.name for column in self._schema.columns[:20])
            raise self._error(f"no column {name} in table {self._schema.table.wire}; it has {known}", token)
        self.columns.add(name)

    def _sign(self, place: int) -> str:
        """Return the sign at a place; empty if there is none."""
        if not 0 <= place < len(self._tokens) or self._tokens[place].kind != "sign":
            return ""
        return self._tokens[place].text

    def _error(self, reason: str, token: CelToken) -> InvalidPredicateError:
        return InvalidPredicateError(reason, text=self._text, place=token.place)
