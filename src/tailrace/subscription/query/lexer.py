"""SQLite's own words and signs, as far as a query needs them. Pure.

The text that we analyse and the text that the database runs come from the same tokens, so a comment, a quoted name or a
number cannot mean one thing to us and another to the database.
"""

import re
from enum import Enum

from msgspec import Struct

from tailrace.model.errors import InvalidRequestError

__all__ = ["RESERVED", "Sort", "Token", "tokens"]


class Sort(Enum):
    """What a token is."""

    WORD = "word"
    NAME = "quoted name"
    STRING = "string"
    BLOB = "blob"
    NUMBER = "number"
    ARGUMENT = "argument"
    SIGN = "sign"


class Token(Struct, frozen=True):
    """One token. `spaced` tells that white space or a comment stands before it."""

    sort: Sort
    text: str
    spaced: bool

    @property
    def upper(self) -> str:
        """Return a word in capitals; empty for anything else, quoted names included."""
        return self.text.upper() if self.sort is Sort.WORD else ""


# fmt: off
RESERVED = frozenset(
    {
        "ALL", "AND", "AS", "BETWEEN", "CASE", "COLLATE", "DISTINCT", "ELSE", "ESCAPE", "EXCEPT", "EXISTS", "FROM",
        "GROUP", "HAVING", "IN", "INTERSECT", "IS", "ISNULL", "JOIN", "LIMIT", "NOT", "NOTNULL", "NULL", "ON", "OR",
        "ORDER", "SELECT", "THEN", "UNION", "USING", "VALUES", "WHEN", "WHERE",
    }
)
# fmt: on
"""Words of a query that can never be a name unless quoted: their letters' case says nothing."""

_LETTER = r"A-Za-z_\x80-\U0010ffff"
_DIGITS = r"\d+(?:_\d+)*"
_PATTERN = re.compile(
    rf"""
      (?P<space>[ \t\n\f\r]+ | --[^\n]* | /\*.*?(?:\*/|\Z))
    | (?P<STRING>'(?:[^']|'')*')
    | (?P<NAME>"(?:[^"]|"")*" | `(?:[^`]|``)*` | \[[^\]]*\])
    | (?P<BLOB>[xX]'(?:[0-9A-Fa-f]{{2}})*')
    | (?P<NUMBER>(?:0[xX][0-9A-Fa-f]+(?:_[0-9A-Fa-f]+)*
        | (?:{_DIGITS}(?:\.(?:{_DIGITS})?)?|\.{_DIGITS})(?:[eE][+-]?{_DIGITS})?)(?![{_LETTER}0-9$]))
    | (?P<WORD>(?![xX]')[{_LETTER}][{_LETTER}0-9$]*)
    | (?P<ARGUMENT>\?[0-9]* | [:@\#$][{_LETTER}0-9$:]+)
    | (?P<SIGN>->> | -> | \|\| | << | >> | <= | >= | == | != | <> | [-+*/%&|~<>=(),.;])
    """,
    re.VERBOSE | re.DOTALL,
)


def tokens(text: str) -> list[Token]:
    """Return the tokens of a statement, comments and white space left out.

    Raises:
        InvalidRequestError: Something in it is no token; the message says where.
    """
    found = []
    place = 0
    spaced = False
    while place < len(text):
        match = _PATTERN.match(text, place)
        if match is None:
            raise InvalidRequestError(f"the query has an unfinished or unknown token at character {place + 1}")
        place = match.end()
        if match.lastgroup == "space":
            spaced = True
        else:
            assert match.lastgroup is not None
            found.append(Token(Sort[match.lastgroup], match.group(), spaced))
            spaced = False
    return found
