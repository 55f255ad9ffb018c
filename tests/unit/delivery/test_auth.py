"""Facts about tokens."""

import pytest

from tailrace.delivery.auth import TokenCheck

CASES = [
    ("the right token", "Bearer one", None, True),
    ("another right token", "Bearer two", None, True),
    ("the scheme in any case", "bearer one", None, True),
    ("as a parameter", None, "two", True),
    ("nothing", None, None, False),
    ("a wrong token", "Bearer three", None, False),
    ("part of a token", "Bearer on", None, False),
    ("no scheme", "one", None, False),
    ("another scheme", "Basic one", None, False),
    ("a wrong header is not healed by the parameter", "Bearer three", "one", False),
    ("an empty token", "Bearer ", None, False),
    ("a token that is not ASCII", "Bearer ü\udcff", None, False),
]


@pytest.mark.parametrize(
    ("authorization", "access_token", "admitted"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_who_is_admitted(authorization, access_token, admitted):
    assert TokenCheck(["one", "two"]).admits(authorization, access_token) is admitted


def test_without_tokens_everybody_is():
    assert TokenCheck([]).admits(None, None)
    assert TokenCheck([]).admits("Bearer whatever", None)
