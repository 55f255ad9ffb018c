"""The terms and the condition of an index, out of its CREATE INDEX text. Pure."""

import re

from msgspec import Struct

from tailrace.sql.sqlite.lexer import lex

__all__ = ["IndexText", "parse_index"]

_COMMENT = re.compile(r"--[^\n]*(?:\n|\Z)|/\*.*?(?:\*/|\Z)", re.DOTALL)

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

    Comments become spaces, so that the parts can be put on one line of another statement. All else stays as it is
    written: triggers are made of it, and are known by their text.
    """
    pieces = _pieces(sql)
    start = next(place for place, piece in enumerate(pieces) if piece == "(")
    terms: list[str] = [""]
    depth = 0
    end = start
    for place in range(start, len(pieces)):
        piece = pieces[place]
        if piece == ")":
            depth -= 1
            if depth == 0:
                end = place
                break
        if piece == "," and depth == 1:
            terms.append("")
        elif depth:
            terms[-1] += piece
        if piece == "(":
            depth += 1
    rest = pieces[end + 1 :]
    word = next((place for place, piece in enumerate(rest) if piece.upper() == "WHERE"), None)
    where = None if word is None else "".join(rest[word + 1 :]).strip()
    return IndexText(tuple(_bare(term) for term in terms), where)


def _pieces(sql: str) -> list[str]:
    """Return the tokens with what stands between them; of that, comments are spaces."""
    pieces, after = [], 0
    for token in lex(sql)[0]:
        pieces += [_COMMENT.sub(" ", sql[after : token.place]), token.text]
        after = token.place + len(token.text)
    return [*pieces, _COMMENT.sub(" ", sql[after:])]


def _bare(term: str) -> str:
    for trailer in _TRAILERS:
        term = trailer.sub("", term)
    return term.strip()
