"""The terms and the condition of an index, out of its CREATE INDEX text. Pure."""
# ruff: noqa: S105 (a token here is a piece of SQL)

import re

from msgspec import Struct

__all__ = ["IndexText", "parse_index"]

_TOKEN = re.compile(
    r"""
      '(?:[^']|'')*'                # text
    | "(?:[^"]|"")*"                # identifiers in three styles
    | `(?:[^`]|``)*`
    | \[[^\]]*\]
    | --[^\n]*(?:\n|\Z)             # comments
    | /\*.*?(?:\*/|\Z)
    | [^\W\d][\w$]*                 # words
    | .                             # anything else, one character at a time
    """,
    re.VERBOSE | re.DOTALL,
)

_TRAILERS = (
    re.compile(r"\s*(?<![\w$])(?:ASC|DESC)\s*\Z", re.IGNORECASE),
    re.compile(r"""\s*(?<![\w$])COLLATE\s*(?:"(?:[^"]|"")*"|`[^`]*`|\[[^\]]*\]|'[^']*'|[\w$]+)\s*\Z""", re.IGNORECASE),
)
"""What may follow the expression of a term: its direction, and before that its collation."""


class IndexText(Struct, frozen=True):
    """An index as written: each term without collation and direction, and the condition of a partial one."""

    terms: tuple[str, ...]
    where: str | None = None


def parse_index(sql: str) -> IndexText:
    """Return the parts of a CREATE INDEX statement that SQLite has accepted.

    Comments become spaces, so that the parts can be put on one line of another statement.
    """
    tokens = [" " if token.startswith(("--", "/*")) else token for token in _TOKEN.findall(sql)]
    start = next(place for place, token in enumerate(tokens) if token == "(")
    terms: list[str] = [""]
    depth = 0
    end = start
    for place in range(start, len(tokens)):
        token = tokens[place]
        if token == ")":
            depth -= 1
            if depth == 0:
                end = place
                break
        if token == "," and depth == 1:
            terms.append("")
        elif depth:
            terms[-1] += token
        if token == "(":
            depth += 1
    rest = tokens[end + 1 :]
    word = next((place for place, token in enumerate(rest) if token.upper() == "WHERE"), None)
    where = None if word is None else "".join(rest[word + 1 :]).strip()
    return IndexText(tuple(_bare(term) for term in terms), where)


def _bare(term: str) -> str:
    for trailer in _TRAILERS:
        term = trailer.sub("", term)
    return term.strip()
