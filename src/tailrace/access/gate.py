"""The gate: who a call is from, and whether they may call now. Every interface asks here and nowhere else."""

from typing import TYPE_CHECKING

from tailrace.access.keys import Keys
from tailrace.access.limit import RateLimits
from tailrace.access.principal import ANONYMOUS, Principal
from tailrace.clock import Clock
from tailrace.model.errors import UnauthenticatedError

if TYPE_CHECKING:  # it loads a library of cryptography, which a server without web tokens does not need
    from tailrace.access.web_token import WebTokens

__all__ = ["Gate", "OpenGate", "TokenGate", "looks_like_web_token"]


class OpenGate:
    """Lets everybody in, as `anonymous`, whatever they bring: authentication is off."""

    async def admit(self, token: str | None) -> Principal:
        """Return who a call with this token is from."""
        return ANONYMOUS


class TokenGate:
    """Lets in who has a key or a web token that is good, as often as they may call. For tasks of one event loop."""

    def __init__(self, keys: Keys, web_tokens: "WebTokens | None", limits: RateLimits, clock: Clock) -> None:
        self._keys = keys
        self._web_tokens = web_tokens
        self._limits = limits
        self._clock = clock

    async def admit(self, token: str | None) -> Principal:
        """Return who a call with this token is from, and count the call.

        Raises:
            UnauthenticatedError: There is no token, or it is not good or not any more.
            RateLimitError: Its principal has called too often.
            MetadataError: A key could not be looked up.
        """
        if token is None:
            raise UnauthenticatedError
        principal = await self._keys.find(token)
        if principal is None and self._web_tokens is not None and looks_like_web_token(token):
            principal = self._web_tokens.verify(token)
        if principal is None:
            raise UnauthenticatedError
        if principal.expires_time_us is not None and principal.expires_time_us <= self._clock.now_us():
            raise UnauthenticatedError(expired=True)
        self._limits.take(principal.name)
        return principal


Gate = OpenGate | TokenGate
"""What an interface asks who calls."""


def looks_like_web_token(token: str) -> bool:
    """Tell whether a token has three parts with dots between."""
    return token.count(".") == 2
