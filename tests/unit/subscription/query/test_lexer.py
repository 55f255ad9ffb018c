import apsw
import pytest

from tailrace.model.errors import InvalidRequestError
from tailrace.subscription.query.lexer import RESERVED, Sort, tokens


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
    assert [token.sort for token in tokens(text)] == found


def test_a_token_knows_whether_something_stands_before_it():
    assert [token.spaced for token in tokens("a b/**/c+ d")] == [False, True, True, False, True]


@pytest.mark.parametrize("text", ["'open", '"open', "[open", "x'1'", "1a", "\\", "{", "é\0"])
def test_what_is_no_token_is_refused(text):
    with pytest.raises(InvalidRequestError, match="token at character"):
        tokens(text)


@pytest.mark.parametrize("word", sorted(RESERVED))
def test_sqlite_takes_no_reserved_word_for_a_name(word):
    with pytest.raises(apsw.SQLError):
        apsw.Connection(":memory:").execute(f"CREATE TABLE t ({word} INTEGER)")
