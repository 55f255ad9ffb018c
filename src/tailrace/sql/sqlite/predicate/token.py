"""Tokens of a predicate's text, each with its value. Pure."""

import re
from enum import StrEnum
from typing import assert_never

from msgspec import Struct

from tailrace.model.errors import InvalidPredicateError
from tailrace.sql.sqlite.lexer import Sort, lex
from tailrace.sql.sqlite.lexer import Token as Lexeme

__all__ = ["TEXT_CHARACTERS_MAX", "Token", "TokenKind", "tokens_of"]

TEXT_CHARACTERS_MAX = 65_536
"""Longest text of a predicate."""

_NUMBER = re.compile(r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?\Z|0[xX][0-9a-fA-F]{1,16}\Z")
_RUN = re.compile(r"[\w$']+")
_OPENING = frozenset("'\"`[")


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
        """Return a bare word or a sign in upper case; empty for everything else."""
        return self.text.upper() if self.kind in {TokenKind.WORD, TokenKind.SIGN} else ""


def tokens_of(text: str) -> list[Token]:
    """Return the tokens of a text; the last one is the end.

    Raises:
        InvalidPredicateError: The text is too long, not made of tokens, or has comments or parameters.
    """
    if len(text) > TEXT_CHARACTERS_MAX:
        reason = f"a predicate has at most {TEXT_CHARACTERS_MAX} characters; this has {len(text)}"
        raise InvalidPredicateError(reason, text="", place=0)
    if "\0" in text:
        raise InvalidPredicateError("a predicate holds no NUL character", text=text, place=text.index("\0"))
    found, end = lex(text)
    if end < len(text):
        raise InvalidPredicateError(_unreadable(text, end), text=text, place=end)
    tokens, after = [], 0
    for token in found:
        _refuse_comment(text, after, token.place)
        after = token.place + len(token.text)
        tokens.append(_read(token, text))
    _refuse_comment(text, after, len(text))
    tokens.append(Token(TokenKind.END, "", len(text.rstrip())))
    return tokens


def _unreadable(text: str, place: int) -> str:
    if text[place] in _OPENING:
        return "a quotation mark is not closed"
    raw = _RUN.match(text, place)
    return f"cannot read {raw[0][:20]!r}" if raw else f"unknown character {text[place]!r}"


def _refuse_comment(text: str, begin: int, end: int) -> None:
    gap = text[begin:end].lstrip(" \t\n\r\f")
    if gap:
        raise InvalidPredicateError("comments are not allowed", text=text, place=end - len(gap))


def _refuse_blanks(word: Lexeme, text: str) -> None:
    """Refuse what SQLite takes for letters and people do not: a space that does not break, say."""
    for place, character in enumerate(word.text, start=word.place):
        if not (character.isalnum() or character in "_$"):
            raise InvalidPredicateError(f"unknown character {character!r}", text=text, place=place)


def _read(token: Lexeme, text: str) -> Token:
    """Return a token with its value: without quotation marks."""
    raw, place = token.text, token.place
    match token.sort:
        case Sort.WORD:
            _refuse_blanks(token, text)
            return Token(TokenKind.WORD, raw, place)
        case Sort.STRING:
            return Token(TokenKind.TEXT, raw[1:-1].replace("''", "'"), place)
        case Sort.NAME:
            inner = raw[1:-1]
            return Token(TokenKind.NAME, inner if raw[0] == "[" else inner.replace(raw[0] * 2, raw[0]), place)
        case Sort.NUMBER if _NUMBER.match(raw):
            return Token(TokenKind.NUMBER, raw, place)
        case Sort.NUMBER:
            raise InvalidPredicateError(f"cannot read {raw[:20]!r}", text=text, place=place)
        case Sort.BLOB:
            return Token(TokenKind.BLOB, raw[2:-1], place)
        case Sort.ARGUMENT:
            raise InvalidPredicateError("parameters are not allowed: write the value", text=text, place=place)
        case Sort.SIGN:
            return Token(TokenKind.SIGN, raw, place)
    assert_never(token.sort)
