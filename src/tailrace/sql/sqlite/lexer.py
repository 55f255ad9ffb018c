"""SQLite's own words and signs, as far as queries and predicates need them. Pure.

The text that we analyse and the text that the database runs come from the same tokens, so a comment, a quoted name or a
number cannot mean one thing to us and another to the database.
"""

import re
from enum import Enum

from msgspec import Struct

__all__ = ["RESERVED", "Sort", "SqlToken", "lex"]


class Sort(Enum):
    """What a token is."""

    WORD = "word"
    NAME = "quoted name"
    STRING = "string"
    BLOB = "blob"
    NUMBER = "number"
    ARGUMENT = "argument"
    SIGN = "sign"
    END = "end"
    """What a parser may put after the last token; no text has it."""


class SqlToken(Struct, frozen=True):
    """One token as it is written, and where. `spaced` tells that white space or a comment stands before it."""

    sort: Sort
    text: str
    place: int
    spaced: bool

    @property
    def word(self) -> str:
        """Return a bare word or a sign in upper case; empty for anything else, quoted names included."""
        return self.text.upper() if self.sort in _WORDS else ""

    @property
    def value(self) -> str:
        """Return what is written without its marks: of a name or a string the characters, of a blob the digits."""
        match self.sort:
            case Sort.NAME | Sort.STRING:
                mark = self.text[0]
                return self.text[1:-1] if mark == "[" else self.text[1:-1].replace(mark * 2, mark)
            case Sort.BLOB:
                return self.text[2:-1]
            case _:
                return self.text


_WORDS = frozenset({Sort.WORD, Sort.SIGN})


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
_DIGITS = r"[0-9]+(?:_[0-9]+)*"
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


def lex(text: str) -> tuple[list[SqlToken], int]:
    """Return the tokens of a text, comments and white space left out, and how much of it they are.

    Where that is less than all, something unfinished or unknown stands there.
    """
    found = []
    place = 0
    spaced = False
    while match := _PATTERN.match(text, place):
        if match.lastgroup == "space":
            spaced = True
        else:
            assert match.lastgroup is not None
            found.append(SqlToken(Sort[match.lastgroup], match.group(), place, spaced))
            spaced = False
        place = match.end()
    return found, place
