"""Who may use the interfaces: bearer tokens."""

from collections.abc import Sequence
from hmac import compare_digest

__all__ = ["TokenCheck"]


class TokenCheck:
    """Checks tokens against the configured ones. With none configured everybody may enter."""

    def __init__(self, tokens: Sequence[str]) -> None:
        self._tokens = [token.encode() for token in tokens]

    def admits(self, authorization: str | None, access_token: str | None) -> bool:
        """Tell whether a request with this `Authorization` header and `access_token` parameter may enter.

        The header counts where there is one; the parameter is for browsers, whose `EventSource` sends no headers.
        """
        if not self._tokens:
            return True
        if authorization is not None:
            scheme, _, token = authorization.partition(" ")
            return scheme.lower() == "bearer" and self._knows(token)
        return access_token is not None and self._knows(access_token)

    def _knows(self, token: str) -> bool:
        given = token.encode("utf-8", "surrogateescape")
        # All are compared, whichever fits, so that the time taken tells nothing.
        return sum(compare_digest(known, given) for known in self._tokens) > 0
