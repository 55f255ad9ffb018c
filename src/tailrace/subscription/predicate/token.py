"""Tokens of a predicate's text, by sqlglot's tokenizer for the source's dialect. Pure."""

import re
from enum import StrEnum

from msgspec import Struct

from tailrace.model.errors import InvalidPredicateError

__all__ = ["TEXT_CHARACTERS_MAX", "Token", "TokenKind", "tokens_of"]

TEXT_CHARACTERS_MAX = 65_536
"""Longest text of a predicate."""

_WORD = re.compile(r"[^\W\d][\w$]*\Z")
_DECIMAL = re.compile(r"[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?\Z")
_HEXADECIMAL = re.compile(r"0[xX][0-9a-fA-F]{1,16}\Z")
_BLOB = re.compile(r"[xX]'((?:[0-9a-fA-F]{2})*)'\Z")
_CLOSING = {'"': '"', "`": "`", "[": "]"}
_SHIFTS = frozenset({"<<", ">>"})
"""Operators that sqlglot gives as two tokens."""

_PARAMETER_SIGNS = frozenset("?:@$")


class TokenKind(StrEnum):
    """What a token is."""

    WORD = "word"
    """A bare word: a name or a keyword."""

    NAME = "name"
    """A quoted name, without its quotation marks."""

    TEXT = "text"
    """A text literal, without its quotation marks."""

    NUMBER = "number"
    """A decimal or hexadecimal number as written."""

    BLOB = "blob"
    """The hexadecimal digits of a blob literal."""

    SIGN = "sign"
    """An operator or a mark of punctuation."""

    END = "end"
    """What follows the last token."""


class Token(Struct, frozen=True):
    """One token, and where it begins in the text."""

    kind: TokenKind
    text: str
    place: int

    @property
    def word(self) -> str:
        """Return a bare word or a sign in capitals; empty for everything else."""
        return self.text.upper() if self.kind in {TokenKind.WORD, TokenKind.SIGN} else ""


def tokens_of(text: str, dialect: str) -> list[Token]:
    """Return the tokens of a text; the last one is the end.

    sqlglot finds where tokens begin and end; what each is, is read from the text itself, so nothing that sqlglot takes
    beyond the dialect (national strings, templates, comments within comments) gets through.

    Raises:
        InvalidPredicateError: The text is too long, or not made of tokens of the dialect.
    """
    import sqlglot
    from sqlglot.errors import TokenError

    if len(text) > TEXT_CHARACTERS_MAX:
        reason = f"a predicate has at most {TEXT_CHARACTERS_MAX} characters; this has {len(text)}"
        raise InvalidPredicateError(reason, text="", place=0)
    if "\0" in text:
        raise InvalidPredicateError("a predicate holds no NUL character", text=text, place=text.index("\0"))
    try:
        found = sqlglot.tokenize(text, read=dialect)
    except TokenError as error:
        place = max(text.rfind("'"), text.rfind('"'), 0)
        raise InvalidPredicateError("a quotation mark is not closed", text=text, place=place) from error
    tokens, after = [], 0
    for token in found:
        _refuse_gap(text, after, token.start)
        after = token.end + 1
        if text[token.start] == "~":
            tokens += [Token(TokenKind.SIGN, "~", place) for place in _tildes(text, token.start, after)]
            continue
        tokens.append(_read(text, token.start, after))
        if text[after - 2 : after] in _SHIFTS and [token.text for token in tokens[-2:]] == list(
            text[after - 2 : after]
        ):
            tokens[-2:] = [Token(TokenKind.SIGN, text[after - 2 : after], after - 2)]
    _refuse_gap(text, after, len(text))
    tokens.append(Token(TokenKind.END, "", len(text.rstrip())))
    return tokens


def _tildes(text: str, begin: int, end: int) -> range:
    """Return the places of signs that sqlglot gives as one token."""
    if text[begin:end].strip("~"):
        raise InvalidPredicateError(f"cannot read {text[begin:end]!r}", text=text, place=begin)
    return range(begin, end)


def _refuse_gap(text: str, begin: int, end: int) -> None:
    gap = text[begin:end].strip(" \t\n\r\f")
    if gap:
        place = text.index(gap[0], begin)
        reason = "comments are not allowed" if gap.startswith(("--", "/*")) else f"unknown character {gap[0]!r}"
        raise InvalidPredicateError(reason, text=text, place=place)


def _read(text: str, begin: int, end: int) -> Token:
    raw = text[begin:end]
    if _WORD.match(raw):
        return Token(TokenKind.WORD, raw, begin)
    if raw[0] == "'":
        return Token(TokenKind.TEXT, raw[1:-1].replace("''", "'"), begin)
    if raw[0] in _CLOSING:
        mark = _CLOSING[raw[0]]
        return Token(TokenKind.NAME, raw[1:-1].replace(mark * 2, mark) if mark != "]" else raw[1:-1], begin)
    if _DECIMAL.match(raw) or _HEXADECIMAL.match(raw):
        return Token(TokenKind.NUMBER, raw, begin)
    if blob := _BLOB.match(raw):
        return Token(TokenKind.BLOB, blob[1], begin)
    if raw[0] in _PARAMETER_SIGNS:
        raise InvalidPredicateError("parameters are not allowed: write the value", text=text, place=begin)
    if raw[0].isalnum() or "'" in raw:
        raise InvalidPredicateError(f"cannot read {raw[:20]!r}", text=text, place=begin)
    return Token(TokenKind.SIGN, raw, begin)
