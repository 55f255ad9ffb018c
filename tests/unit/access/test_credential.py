"""Facts about the token of a call."""

import pytest

from tailrace.access.credential import TOKEN_CHARACTERS_MAX, token_of


@pytest.mark.parametrize(
    ("authorization", "api_key", "access_token", "token"),
    [
        ("Bearer k", None, None, "k"),
        (None, "k", None, "k"),
        (None, None, "k", "k"),
        (None, "k", "other", "k"),
        ("Bearer a", "b", "c", "a"),
        ("Basic a", "b", "c", None),
        ("bearer k", None, None, None),
        ("BEARER k", None, None, None),
        ("k", None, None, None),
        ("", "k", None, None),
        ("Bearer ", "k", None, None),
        ("Bearer  k", None, None, " k"),
        ("Bearer\tk", None, None, None),
        (None, "", None, None),
        (None, None, None, None),
        ("Bearer " + "x" * TOKEN_CHARACTERS_MAX, None, None, "x" * TOKEN_CHARACTERS_MAX),
        ("Bearer " + "x" * (TOKEN_CHARACTERS_MAX + 1), None, None, None),
    ],
    ids=lambda value: "long" if isinstance(value, str) and len(value) > 20 else repr(value),
)
def test_authorization_wins_if_it_is_there_and_is_taken_literally(authorization, api_key, access_token, token):
    assert token_of(authorization, api_key, access_token) == token
