"""The token of a call, out of what its client sent. Pure.

`authorization` counts wherever it is sent, and only as `Bearer ` and a token, case and the one space included. An
`x-api-key` without it is taken for a token as it stands. `access_token` is for browsers, whose `EventSource` and
`WebSocket` send no headers.
"""

__all__ = ["TOKEN_CHARACTERS_MAX", "token_of"]

TOKEN_CHARACTERS_MAX = 16 << 10
"""Longest token; a longer one is none."""

_SCHEME = "Bearer "


def token_of(authorization: str | None, api_key: str | None, access_token: str | None = None) -> str | None:
    """Return the token that a call brings; None where it brings none that could be one."""
    if authorization is not None:
        token = authorization.removeprefix(_SCHEME) if authorization.startswith(_SCHEME) else ""
    else:
        token = api_key or access_token or ""
    return token if 0 < len(token) <= TOKEN_CHARACTERS_MAX else None
