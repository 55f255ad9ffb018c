"""The parser of SQL predicates: one expression, by SQLite's precedences. Pure.

The grammar is here. sqlglot's parser is made for whole statements of many dialects: it takes more
than each dialect does (`'a' 'b'`, `a::int`), binds some operators otherwise (`a < b IN (1)` is `(a < b) IN (1)` in
SQLite) and keeps no places. A predicate must mean what the database would take it to mean, or be refused.
"""

import re
from collections.abc import Callable

from tailrace.model.errors import InvalidPredicateError
from tailrace.sql.sqlite.lexer import Sort, SqlToken, lex
from tailrace.sql.sqlite.predicate.syntax import (
    Case,
    Cast,
    Collate,
    Function,
    LiteralValue,
    Node,
    SqlLiteral,
    SqlName,
    SqlOperation,
    height_of,
)

__all__ = ["BRANCHES_MAX", "DEPTH_MAX", "NODES_MAX", "TEXT_CHARACTERS_MAX", "parse"]

TEXT_CHARACTERS_MAX = 65_536
"""Longest text of a predicate."""

DEPTH_MAX = 48
"""Deepest nesting of operators and brackets. Chains of AND and of OR are one level each."""

NODES_MAX = 8_192
"""Most operators, names and literals in one predicate."""

BRANCHES_MAX = 64
"""Most branches of one CASE, and most arguments of one function."""

_DIGITS_MAX = 19
"""Most digits of a number, leading zeros aside: beyond them SQLite's own reading is not the nearest number."""

_OR, _AND, _NOT, _EQUAL, _ORDER, _BIT, _ADD, _MULTIPLY, _CONCAT, _COLLATE, _PREFIX = range(1, 12)
"""How strongly operators bind, weakest first: https://www.sqlite.org/lang_expr.html, chapter 2."""

_LOOSEST = 0

_BINDING = {
    "OR": _OR,
    "AND": _AND,
    **dict.fromkeys(["=", "==", "<>", "!=", "IS", "IN", "BETWEEN", "LIKE", "GLOB"], _EQUAL),
    **dict.fromkeys(["ISNULL", "NOTNULL", "NOT", "MATCH", "REGEXP"], _EQUAL),
    **dict.fromkeys(["<", "<=", ">", ">="], _ORDER),
    **dict.fromkeys(["&", "|", "<<", ">>"], _BIT),
    **dict.fromkeys(["+", "-"], _ADD),
    **dict.fromkeys(["*", "/", "%"], _MULTIPLY),
    **dict.fromkeys(["||", "->", "->>"], _CONCAT),
    "COLLATE": _COLLATE,
}
"""Binding of each operator that follows an operand. A `NOT` there begins NOT NULL, NOT IN, NOT LIKE…"""

_SPELLINGS = {"==": "=", "!=": "<>"}

_REFUSED_OPERATORS = {"MATCH", "REGEXP", "->", "->>"}

_RESERVED = frozenset(
    {"AND", "OR", "NOT", "IN", "IS", "LIKE", "GLOB", "BETWEEN", "WHEN", "THEN", "ELSE", "END", "COLLATE", "ESCAPE"}
    | {"ISNULL", "NOTNULL", "AS", "FROM", "DISTINCT", "MATCH", "REGEXP", "ORDER", "GROUP", "WHERE", "LIMIT", "HAVING"}
    | {"UNION", "INTERSECT", "EXCEPT", "JOIN", "USING", "ON", "SET", "TABLE", "INTO"}
)
"""Words that name nothing unless quoted."""

_LEAST = re.compile(r"0*9223372036854775808(?![0-9.eE_])")
"""The least integer without its sign. By itself it is a real number."""

_NUMBER = re.compile(r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?\Z|0[xX][0-9a-fA-F]{1,16}\Z")
_RUN = re.compile(r"[\w$']+")
_OPENING = frozenset("'\"`[")

_STATEMENTS = frozenset({"SELECT", "VALUES", "WITH", "EXISTS", "INSERT", "UPDATE", "DELETE", "CREATE", "DROP", "ALTER"})

_CLOCKS = frozenset({"CURRENT_TIME", "CURRENT_DATE", "CURRENT_TIMESTAMP"})


def parse(text: str) -> Node:
    """Return the expression that a text is.

    Raises:
        InvalidPredicateError: It is not one expression within the bounds; the error shows the place.
    """
    return _Parser(text, _tokens_of(text)).whole()


class _Parser:
    """Precedence climbing over the tokens of one text."""

    def __init__(self, text: str, tokens: list[SqlToken]) -> None:
        self._text = text
        self._tokens = tokens
        self._next = 0
        self._depth = 0
        self._nodes = 0

    def whole(self) -> Node:
        if self._peek().sort is Sort.END:
            raise self._error("a predicate is one condition; this is empty")
        node = self._expression(_LOOSEST)
        if self._peek().sort is not Sort.END:
            raise self._unexpected()
        return node

    def _expression(self, floor: int) -> Node:
        """Parse operands and operators that bind more strongly than `floor`."""
        self._depth += 1
        if self._depth > 2 * DEPTH_MAX:
            raise self._error(f"a predicate is at most {DEPTH_MAX} levels deep")
        left = self._operand()
        while _BINDING.get(self._peek().word, _LOOSEST) > floor:
            left = self._infix(left)
        self._depth -= 1
        return left

    def _infix(self, left: Node) -> Node:
        token = self._take()
        word = token.word
        if word in _REFUSED_OPERATORS:
            raise self._error(f"the operator {word} is not supported", token)
        special = _SPECIAL.get(word)
        if special is not None:
            return special(self, left, token)
        return self._operation(_SPELLINGS.get(word, word), (left, self._expression(_BINDING[word])), token)

    def collate(self, left: Node, token: SqlToken) -> Node:
        name = self._take()
        if name.sort not in {Sort.WORD, Sort.NAME}:
            raise self._error("the name of a collation is missing", name)
        return self._bounded(Collate(left, name.value.upper(), token.place, height_of(left)))

    def is_(self, left: Node, token: SqlToken) -> Node:
        negated = self._accept("NOT")
        if self._accept("DISTINCT"):
            self._expect("FROM")
            negated = not negated
        right = self._expression(_EQUAL)
        return self._operation("IS NOT" if negated else "IS", (left, right), token)

    def is_null(self, left: Node, token: SqlToken) -> Node:
        return self._operation(
            "IS" if token.word == "ISNULL" else "IS NOT", (left, SqlLiteral(None, token.place)), token
        )

    def not_(self, left: Node, token: SqlToken) -> Node:
        """Parse what may follow an operand and NOT."""
        following = self._take()
        match following.word:
            case "NULL":
                return self._operation("IS NOT", (left, SqlLiteral(None, following.place)), token)
            case "IN" | "BETWEEN" | "LIKE" | "GLOB":
                positive = _SPECIAL[following.word](self, left, following)
                return self._operation("NOT", (positive,), token)
            case "MATCH" | "REGEXP":
                raise self._error(f"the operator {following.word} is not supported", following)
            case _:
                raise self._error("expected IN, BETWEEN, LIKE, GLOB or NULL after NOT", following)

    def in_(self, left: Node, token: SqlToken) -> Node:
        self._expect("(", "IN takes a list of values in brackets")
        self._refuse_statement()
        if self._peek().word == ")":
            raise self._error("IN needs at least one value")
        options = self._list()
        self._expect(")")
        return self._operation("IN", (left, *options), token)

    def between(self, left: Node, token: SqlToken) -> Node:
        lower = self._expression(_AND)
        self._expect("AND", "BETWEEN needs AND")
        return self._operation("BETWEEN", (left, lower, self._expression(_EQUAL)), token)

    def like(self, left: Node, token: SqlToken) -> Node:
        pattern = self._expression(_EQUAL)
        if not self._accept("ESCAPE"):
            return self._operation(token.word, (left, pattern), token)
        if token.word == "GLOB":
            raise self._error("GLOB has no ESCAPE")
        return self._operation(token.word, (left, pattern, self._expression(_EQUAL)), token)

    def chain(self, left: Node, token: SqlToken) -> Node:
        """Parse the further operands of AND or OR; a chain of them is one node."""
        operands = [left, self._expression(_BINDING[token.word])]
        while self._accept(token.word):
            operands.append(self._expression(_BINDING[token.word]))
        return self._operation(token.word, tuple(operands), token)

    def _operand(self) -> Node:
        token = self._take()
        match token.sort:
            case Sort.STRING:
                return self._bounded(SqlLiteral(token.value, token.place))
            case Sort.BLOB:
                return self._bounded(SqlLiteral(bytes.fromhex(token.value), token.place))
            case Sort.NUMBER:
                return self._bounded(SqlLiteral(self._number(token), token.place))
            case Sort.NAME:
                return self._name(token)
            case Sort.WORD:
                return self._word(token)
            case Sort.SIGN:
                return self._sign(token)
            case Sort.END:
                raise self._error("a value is missing at the end", token)
            case Sort.ARGUMENT:
                raise AssertionError("_tokens_of refuses parameters")

    def _sign(self, token: SqlToken) -> Node:
        match token.word:
            case "(":
                self._refuse_statement()
                node = self._expression(_LOOSEST)
                if self._peek().word == ",":
                    raise self._error("row values are not supported")
                self._expect(")")
                return node
            case "-":
                return self._minus(token)
            case "+" | "~":
                return self._operation(f"{token.word}x", (self._expression(_PREFIX - 1),), token)
            case _:
                raise self._unexpected(token)

    def _minus(self, token: SqlToken) -> Node:
        """Parse a negative number as one literal, so that the least integer can be written."""
        if self._peek().sort is Sort.NUMBER:
            number = self._take()
            if _LEAST.match(number.value):
                return self._bounded(SqlLiteral(-(2**63), token.place))
            value = self._number(number)
            assert isinstance(value, int | float)
            if value != -(2**63):
                return self._bounded(SqlLiteral(-value, token.place))
            self._next -= 1
        operand = self._expression(_PREFIX - 1)
        if self._writes_least(operand):
            return self._bounded(SqlLiteral(-(2**63), token.place))
        return self._operation("-x", (operand,), token)

    def _writes_least(self, node: Node) -> bool:
        """Tell whether this with a minus is the least integer: SQLite looks through parentheses and plus signs."""
        while isinstance(node, SqlOperation) and node.operator == "+x":
            node = node.operands[0]
        return isinstance(node, SqlLiteral) and bool(_LEAST.match(self._text, node.place))

    def _number(self, token: SqlToken) -> LiteralValue:
        if token.value[:2] in {"0x", "0X"}:
            value = int(token.value, 16)
            return value - 2**64 if value >= 2**63 else value
        if len(re.sub("[eE].*", "", token.value).replace(".", "").lstrip("0")) > _DIGITS_MAX:
            raise self._error(f"a number has at most {_DIGITS_MAX} digits", token)
        whole = int(token.value) if token.value.isdecimal() else None
        return whole if whole is not None and whole < 2**63 else float(token.value)

    def _word(self, token: SqlToken) -> Node:
        word = token.word
        if word == "NULL":
            return self._bounded(SqlLiteral(None, token.place))
        if word == "NOT":
            if self._peek().word == "EXISTS":
                self._refuse_statement()
            return self._operation("NOT", (self._expression(_NOT - 1),), token)
        if word == "CASE":
            return self._case(token)
        if word in _STATEMENTS and (word != "VALUES" or self._peek().word == "("):
            raise self._error("sub-queries and statements are not allowed", token)
        if word in _CLOCKS:
            raise self._error(
                f"{word} differs from one moment to the next: a predicate hangs on the change alone", token
            )
        if word in _RESERVED:
            raise self._unexpected(token)
        return self._call(token) if self._peek().word == "(" else self._name(token)

    def _name(self, token: SqlToken) -> Node:
        parts, last = [token.value], token
        while self._accept("."):
            last = self._take()
            if last.sort not in {Sort.WORD, Sort.NAME}:
                raise self._error("the name of a column is missing", last)
            parts.append(last.value)
        return self._bounded(SqlName(tuple(parts), last.sort is Sort.NAME, token.place))

    def _call(self, token: SqlToken) -> Node:
        self._expect("(")
        if token.word == "CAST":
            return self._cast(token)
        if self._peek().word in {"*", "DISTINCT"}:
            raise self._error("aggregates are not allowed", token)
        arguments = self._list() if self._peek().word != ")" else ()
        self._expect(")")
        if self._peek().word in {"OVER", "FILTER"}:
            raise self._error("window functions and aggregates are not allowed", token)
        if len(arguments) > BRANCHES_MAX:
            raise self._error(f"a function has at most {BRANCHES_MAX} arguments", token)
        return self._bounded(Function(token.value.lower(), arguments, token.place, height_of(*arguments)))

    def _cast(self, token: SqlToken) -> Node:
        value = self._expression(_LOOSEST)
        self._expect("AS", "CAST needs AS and a type")
        words = []
        while self._peek().sort in {Sort.WORD, Sort.NAME, Sort.STRING}:
            words.append(self._take().value)
        if self._accept("("):
            while self._peek().sort is Sort.NUMBER or self._peek().word in {",", "+", "-"}:
                self._take()
            self._expect(")")
        self._expect(")")
        return self._bounded(Cast(value, " ".join(words), token.place, height_of(value)))

    def _case(self, token: SqlToken) -> Node:
        base = None if self._peek().word == "WHEN" else self._expression(_LOOSEST)
        branches = []
        while self._accept("WHEN"):
            condition = self._expression(_LOOSEST)
            self._expect("THEN")
            branches.append((condition, self._expression(_LOOSEST)))
        if not 1 <= len(branches) <= BRANCHES_MAX:
            raise self._error(f"CASE has 1 to {BRANCHES_MAX} branches WHEN … THEN", token)
        otherwise = self._expression(_LOOSEST) if self._accept("ELSE") else None
        self._expect("END", "CASE needs END")
        height = height_of(base, otherwise, *(node for branch in branches for node in branch))
        return self._bounded(Case(base, tuple(branches), otherwise, token.place, height))

    def _list(self) -> tuple[Node, ...]:
        nodes = [self._expression(_LOOSEST)]
        while self._accept(","):
            nodes.append(self._expression(_LOOSEST))
        return tuple(nodes)

    def _operation(self, operator: str, operands: tuple[Node, ...], token: SqlToken) -> Node:
        return self._bounded(SqlOperation(operator, operands, token.place, height_of(*operands)))

    def _bounded(self, node: Node) -> Node:
        self._nodes += 1
        if self._nodes > NODES_MAX:
            raise self._error(f"a predicate has at most {NODES_MAX} parts")
        if getattr(node, "height", 1) > DEPTH_MAX:
            raise self._error(f"a predicate is at most {DEPTH_MAX} levels deep")
        return node

    def _refuse_statement(self) -> None:
        if self._peek().word in _STATEMENTS:
            raise self._error("sub-queries are not allowed")

    def _peek(self) -> SqlToken:
        return self._tokens[self._next]

    def _take(self) -> SqlToken:
        token = self._tokens[self._next]
        if token.sort is not Sort.END:
            self._next += 1
        return token

    def _accept(self, word: str) -> bool:
        if self._peek().word != word:
            return False
        self._next += 1
        return True

    def _expect(self, word: str, reason: str = "") -> None:
        if not self._accept(word):
            raise self._error(reason or f"expected {word}")

    def _unexpected(self, token: SqlToken | None = None) -> InvalidPredicateError:
        token = token or self._peek()
        return self._error(f"{token.value!r} is not expected here", token)

    def _error(self, reason: str, token: SqlToken | None = None) -> InvalidPredicateError:
        return InvalidPredicateError(reason, text=self._text, place=(token or self._peek()).place)


_SPECIAL: dict[str, Callable[[_Parser, Node, SqlToken], Node]] = {
    "AND": _Parser.chain,
    "OR": _Parser.chain,
    "COLLATE": _Parser.collate,
    "IS": _Parser.is_,
    "ISNULL": _Parser.is_null,
    "NOTNULL": _Parser.is_null,
    "NOT": _Parser.not_,
    "IN": _Parser.in_,
    "BETWEEN": _Parser.between,
    "LIKE": _Parser.like,
    "GLOB": _Parser.like,
}


def _tokens_of(text: str) -> list[SqlToken]:
    """Return the tokens of a text; the last one is the end."""
    if len(text) > TEXT_CHARACTERS_MAX:
        reason = f"a predicate has at most {TEXT_CHARACTERS_MAX} characters; this has {len(text)}"
        raise InvalidPredicateError(reason, text="", place=0)
    if "\0" in text:
        raise InvalidPredicateError("a predicate holds no NUL character", text=text, place=text.index("\0"))
    tokens, end = lex(text)
    if end < len(text):
        raise InvalidPredicateError(_unreadable(text, end), text=text, place=end)
    after = 0
    for token in tokens:
        _refuse_comment(text, after, token.place)
        _refuse_token(token, text)
        after = token.place + len(token.text)
    _refuse_comment(text, after, len(text))
    return [*tokens, SqlToken(Sort.END, "", len(text.rstrip()), spaced=True)]


def _unreadable(text: str, place: int) -> str:
    if text[place] in _OPENING:
        return "a quotation mark is not closed"
    raw = _RUN.match(text, place)
    return f"cannot read {raw[0][:20]!r}" if raw else f"unknown character {text[place]!r}"


def _refuse_comment(text: str, begin: int, end: int) -> None:
    gap = text[begin:end].lstrip(" \t\n\r\f")
    if gap:
        raise InvalidPredicateError("comments are not allowed", text=text, place=end - len(gap))


def _refuse_token(token: SqlToken, text: str) -> None:
    """Refuse what SQLite reads and a predicate does not have.

    Those are parameters, numbers that not every version of SQLite reads alike, and words with what SQLite takes for
    letters and people do not: a space that does not break, say.
    """
    match token.sort:
        case Sort.WORD:
            for place, character in enumerate(token.text, start=token.place):
                if not (character.isalnum() or character in "_$"):
                    raise InvalidPredicateError(f"unknown character {character!r}", text=text, place=place)
        case Sort.NUMBER if not _NUMBER.match(token.text):
            raise InvalidPredicateError(f"cannot read {token.text[:20]!r}", text=text, place=token.place)
        case Sort.ARGUMENT:
            raise InvalidPredicateError("parameters are not allowed: write the value", text=text, place=token.place)
