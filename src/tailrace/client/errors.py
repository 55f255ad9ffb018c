"""The errors that a client raises. Each docstring says what the caller should do.

ClientError
├── ConnectionFailed              the server cannot be reached or did not answer in time: try again later
├── BadAnswer                     whatever answered is not a Tailrace server of this version: check the URL
├── Refused                       the server answered with an error: `code` and `details` tell which
│   ├── Unauthorized              the token is missing or wrong
│   ├── Forbidden                 the token does not allow this
│   ├── NotFound                  no such table, subscription or query
│   ├── InvalidRequest            fix the request
│   ├── NotSupported              this server has no such method or option
│   ├── Conflict                  the state changed meanwhile, or a condition of the request does not hold
│   ├── TimedOut                  the server took too long: try again
│   ├── RateLimited               too many calls, streams or subscriptions: wait, or close some
│   └── ServerFault               a fault inside the server: see its diagnostics
├── ResnapshotRequired            changes were lost to retention: take a new snapshot
└── FeedFailed                    the server ended a feed for a reason of its own
"""

# ruff: noqa: N818 - the names say what happened; the root says that they are errors

from collections.abc import Mapping
from typing import Any

from tailrace.model.errors import TailraceError

__all__ = [
    "CODES",
    "STATUSES",
    "BadAnswer",
    "ClientError",
    "Conflict",
    "ConnectionFailed",
    "FeedFailed",
    "Forbidden",
    "InvalidRequest",
    "NotFound",
    "NotSupported",
    "RateLimited",
    "Refused",
    "ResnapshotRequired",
    "ServerFault",
    "TimedOut",
    "Unauthorized",
    "refusal",
]


class ClientError(TailraceError):
    """Root of all errors that a client raises on purpose."""


class ConnectionFailed(ClientError):
    """The server cannot be reached, broke the connection or did not answer in time. Try again later."""


class BadAnswer(ClientError):
    """The answer is not one that a Tailrace server gives. Check the URL and the server's version."""


class Refused(ClientError):
    """The server answered with an error. `code` is its word for it, `details` what a program can use."""

    def __init__(self, code: str, message: str, details: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.details: Mapping[str, Any] = details or {}


class Unauthorized(Refused):
    """The token is missing or wrong. Give the client a valid one."""


class Forbidden(Refused):
    """The token is known but does not allow this."""


class NotFound(Refused):
    """No such table, subscription or query; a subscription may have been closed."""


class InvalidRequest(Refused):
    """The server cannot do what was asked. Fix the request: the message names the member at fault."""


class NotSupported(Refused):
    """The server has no such method or option, or speaks another version. See `capabilities`."""


class Conflict(Refused):
    """The state changed meanwhile, or a condition of the request does not hold. Look again, then decide."""


class TimedOut(Refused):
    """The server took too long and gave up. Trying again may help."""


class RateLimited(Refused):
    """Too many calls, streams or subscriptions. Wait, as long as the details tell, or close some."""


class ServerFault(Refused):
    """A fault inside the server. Its diagnostics tell more; trying again may help."""


class ResnapshotRequired(ClientError):
    """Retention removed changes that this subscription has not had. Take a new snapshot and subscribe again.

    The next change that can be had is the one after `resnapshot_from_offset`.
    """

    def __init__(
        self, *, sub_id: str, earliest_offset: int, latest_offset: int, resnapshot_from_offset: int, reason: str
    ) -> None:
        super().__init__(
            f"{sub_id}: the changes before offset {earliest_offset} are gone ({reason}); take a new snapshot"
        )
        self.sub_id = sub_id
        self.earliest_offset = earliest_offset
        self.latest_offset = latest_offset
        self.resnapshot_from_offset = resnapshot_from_offset
        self.reason = reason


class FeedFailed(ClientError):
    """The server ended a feed and said why, e.g. a predicate that failed on a row. Fix the subscription."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


CODES: Mapping[str, type[Refused]] = {
    "unauthorized": Unauthorized,
    "forbidden": Forbidden,
    "not_found": NotFound,
    "invalid_request": InvalidRequest,
    "unsupported_version": NotSupported,
    "not_supported": NotSupported,
    "not_implemented": NotSupported,
    "conflict": Conflict,
    "precondition_failed": Conflict,
    "timeout": TimedOut,
    "rate_limited": RateLimited,
    "internal": ServerFault,
}
"""Error of each code that an answer can have; a code that is not here is a plain `Refused`."""

STATUSES: Mapping[int, str] = {
    400: "invalid_request",
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    408: "timeout",
    409: "conflict",
    412: "precondition_failed",
    413: "invalid_request",
    415: "invalid_request",
    422: "invalid_request",
    429: "rate_limited",
    500: "internal",
}
"""Code of an HTTP status whose body has none."""


def refusal(code: str, message: str, details: Mapping[str, Any] | None = None) -> Refused:
    """Return the error for a code."""
    return CODES.get(code, Refused)(code, message, details)
