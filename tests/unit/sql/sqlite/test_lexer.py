"""Facts about the lexer."""

import apsw
import pytest

from tailrace.sql.sqlite.lexer import RESERVED, Sort, lex


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a b1 _c é$", [Sort.WORD] * 4),
        ("'it''s' \"a\"\"b\" `c``d` [e f]", [Sort.STRING, Sort.NAME, Sort.NAME, Sort.NAME]),
        ("x'0aFF' X''", [Sort.BLOB, Sort.BLOB]),
        ("1 1.5 .5 5. 1e3 1.5E-7 0xfF 1_000 1_0.0_1e1_0", [Sort.NUMBER] * 9),
        ("? ?12 :a @b $c", [Sort.ARGUMENT] * 5),
        ("->> -> || << >> <= >= == != <> + - * / % & | ~ < > = ( ) , . ;", [Sort.SIGN] * 26),
        ("a--b\nc/*d*/e/*f", [Sort.WORD] * 3),
        ("t.a", [Sort.WORD, Sort.SIGN, Sort.WORD]),
    ],
)
def test_tokens_are_told_apart(text, found):
    tokens, end = lex(text)
    assert [token.sort for token in tokens] == found
    assert end == len(text)
    assert [text[token.place :][: len(token.text)] for token in tokens] == [token.text for token in tokens]


def test_a_token_knows_whether_something_stands_before_it():
    assert [token.spaced for token in lex("a b/**/c+ d")[0]] == [False, True, True, False, True]


@pytest.mark.parametrize(
    ("text", "value", "word"),
    [
        ("Select", "Select", "SELECT"),
        ("<=", "<=", "<="),
        ('"a""b"', 'a"b', ""),
        ("`a``b`", "a`b", ""),
        ("[a]", "a", ""),
        ('["a""b"]', '"a""b"', ""),
        ("'it''s'", "it's", ""),
        ("x'0aFF'", "0aFF", ""),
        ("1_000", "1_000", ""),
        ("?12", "?12", ""),
    ],
)
def test_a_token_has_a_value_without_marks_and_a_word_only_if_bare(text, value, word):
    (token,), _ = lex(text)
    assert (token.value, token.word) == (value, word)


@pytest.mark.parametrize("text", ["'open", '"open', "[open", "x'1'", "1a", "\\", "{", "\0"])
def test_reading_ends_before_what_is_no_token(text):
    assert lex(f"a {text}")[1] == 2


def test_digits_of_other_scripts_are_letters_as_in_sqlite():
    assert [token.sort for token in lex("٣ a٣")[0]] == [Sort.WORD, Sort.WORD]
    assert apsw.Connection(":memory:").execute("SELECT ٣ FROM (SELECT 1 AS ٣)").fetchall() == [(1,)]


@pytest.mark.parametrize("word", sorted(RESERVED))
def test_sqlite_takes_no_reserved_word_for_a_name(word):
    with pytest.raises(apsw.SQLError):
        apsw.Connection(":memory:").execute(f"CREATE TABLE t ({word} INTEGER)")
