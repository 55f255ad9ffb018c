"""Takes one query in SQLite's dialect: exactly one statement that only reads, in a canonical form with an id. Pure."""

import base64
import hashlib
from collections.abc import Sequence

import sqlglot
from msgspec import Struct
from sqlglot import exp
from sqlglot.errors import SqlglotError

from tailrace.model.errors import InvalidRequestError
from tailrace.sql.sqlite.lexer import RESERVED, Sort, SqlToken, lex
from tailrace.sql.sqlite.query.function import Usage, usage

__all__ = ["ARGUMENTS_MAX", "DEPTH_MAX", "TEXT_MAX", "Query", "argument_number", "parse", "parse_view"]

TEXT_MAX = 65_536
"""Characters of a query."""
DEPTH_MAX = 64
"""Brackets and CASEs within one another in a query."""
ARGUMENTS_MAX = 999
"""Highest number of an argument in a query."""

_ARGUMENT = "argument_"
_UNREADABLE = (SqlglotError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What sqlglot raises at texts that it cannot read; at some it stumbles over itself."""
_STARTS = {"SELECT", "VALUES", "WITH"}


class Query(Struct, frozen=True):
    """One query.

    `text` is its canonical form and what the database runs: comments gone, white space single, words that are never
    names in upper case, arguments numbered `?1`, `?2`, … Names keep their letters, since results show them. Two
    queries with the same text are the same query and have the same `query_id`.

    `tree` is sqlglot's reading of it, None where sqlglot cannot read what the database perhaps can; `problem` then
    says why.
    """

    text: str
    arguments: int
    query_id: str
    usage: Usage
    tree: exp.Expr | None
    problem: str = ""

    @property
    def ordered(self) -> bool:
        """Tell whether the order of rows belongs to the result: it has an ORDER BY, or nobody knows."""
        tree = self.tree
        while isinstance(tree, exp.Subquery) and not tree.args.get("order"):
            tree = tree.this
        return tree is None or bool(tree.args.get("order"))


def parse(sql: str) -> Query:
    """Return the statement of a query's text.

    Raises:
        InvalidRequestError: It is not one statement that only reads, too long, too deep, or has named arguments.
    """
    if len(sql) > TEXT_MAX:
        raise InvalidRequestError(f"the query is longer than {TEXT_MAX} characters")
    words = _tokens(sql)
    while words and words[-1].text == ";":
        words.pop()
    _check(words)
    numbers = _argument_numbers(words)
    text = _canonical(words, numbers)
    tree, problem = _read(words, numbers)
    if tree is not None and not isinstance(tree, exp.Query | exp.Values):
        raise InvalidRequestError("a query only reads: SELECT, WITH … SELECT or VALUES")
    digest = hashlib.sha256(text.encode()).digest()
    query_id = "q_" + base64.b32encode(digest).decode().rstrip("=").lower()
    return Query(text, max(numbers.values(), default=0), query_id, usage(words), tree, problem)


def parse_view(sql: str) -> tuple[exp.Create | None, Usage]:
    """Return sqlglot's reading of a CREATE VIEW statement, None if it cannot, and what its words tell."""
    words = _tokens(sql)
    body = next((place for place, word in enumerate(words) if word.word == "AS"), 0)
    depth = _depth(words)
    tree = _read(words, {})[0] if depth <= DEPTH_MAX else None
    return tree if isinstance(tree, exp.Create) else None, usage(words[body + 1 :])


def argument_number(node: exp.Expr) -> int | None:
    """Return which argument a node of the tree stands for, from 1; None if it is none."""
    if isinstance(node, exp.Placeholder) and isinstance(node.this, str) and node.this.startswith(_ARGUMENT):
        return int(node.this.removeprefix(_ARGUMENT))
    return None


def _check(words: Sequence[SqlToken]) -> None:
    if not words or words[0].word not in _STARTS:
        raise InvalidRequestError("a query begins with SELECT, WITH or VALUES")
    if any(word.text == ";" for word in words):
        raise InvalidRequestError("a query is one statement")
    if _depth(words) > DEPTH_MAX:
        raise InvalidRequestError(f"the query is nested deeper than {DEPTH_MAX}")


def _depth(words: Sequence[SqlToken]) -> int:
    depth = deepest = 0
    for word in words:
        if word.text == "(" or word.word == "CASE":
            depth += 1
            deepest = max(deepest, depth)
        elif word.text == ")" or word.word == "END":
            depth -= 1
    return deepest


def _argument_numbers(words: Sequence[SqlToken]) -> dict[int, int]:
    """Return the number of each argument by its place; a bare `?` is the one after the highest so far, as in SQLite."""
    numbers: dict[int, int] = {}
    highest = 0
    for place, word in enumerate(words):
        if word.sort is not Sort.ARGUMENT:
            continue
        if not word.text.startswith("?"):
            raise InvalidRequestError(f"arguments have numbers, not names: write ?1 instead of {word.text[:40]}")
        number = int(word.text[1:]) if len(word.text) > 1 else highest + 1
        if not 1 <= number <= ARGUMENTS_MAX:
            raise InvalidRequestError(f"arguments are numbered from 1 to {ARGUMENTS_MAX}")
        numbers[place] = number
        highest = max(highest, number)
    return numbers


def _canonical(words: Sequence[SqlToken], numbers: dict[int, int]) -> str:
    parts: list[str] = []
    for place, word in enumerate(words):
        if word.spaced and parts:
            parts.append(" ")
        if place in numbers:
            parts.append(f"?{numbers[place]}")
        else:
            parts.append(word.word if not place or word.word in RESERVED else word.text)
    return "".join(parts)


def _read(words: Sequence[SqlToken], numbers: dict[int, int]) -> tuple[exp.Expr | None, str]:
    """Return sqlglot's reading, or None and why.

    sqlglot drops a unary plus, which in SQLite takes the affinity off a column; it is read as two minuses, which hides
    nothing: the same columns, and no plain comparison.
    """
    parts = []
    for place, word in enumerate(words):
        if place in numbers:
            parts.append(f":{_ARGUMENT}{numbers[place]}")
        elif word.text == "+":
            parts.append("- -")
        elif word.sort is Sort.NUMBER:
            parts.append(word.text.replace("_", ""))
        else:
            parts.append(word.text)
    try:
        return sqlglot.parse_one(" ".join(parts), dialect="sqlite"), ""
    except _UNREADABLE as error:
        return None, str(error).partition("\n")[0]
    except RecursionError:
        return None, "it is nested too deep"


def _tokens(sql: str) -> list[SqlToken]:
    found, end = lex(sql)
    if end < len(sql):
        raise InvalidRequestError(f"the query has an unfinished or unknown token at character {end + 1}")
    return found
