"""Errors as statuses of gRPC. Pure."""

from tailrace.delivery.grpc.call import Code, Metadata, StatusError
from tailrace.model.errors import (
    AccessError,
    BehindHorizonError,
    BeyondHeadError,
    CaptureDisabledError,
    InvalidRequestError,
    KeyValueError,
    LogClosedError,
    NotFoundError,
    PermissionDeniedError,
    PredicateError,
    QueryTimeoutError,
    QuotaError,
    RateLimitError,
    ResultTooLargeError,
    SourceAbilityError,
    SourceUnavailableError,
    TailraceError,
    UnauthenticatedError,
)

__all__ = ["CODES", "DISABLED", "SHUT_DOWN", "status_of"]

CODES: dict[type[TailraceError], Code] = {
    TailraceError: Code.INTERNAL,
    InvalidRequestError: Code.INVALID_ARGUMENT,
    CaptureDisabledError: Code.FAILED_PRECONDITION,
    BeyondHeadError: Code.OUT_OF_RANGE,
    ResultTooLargeError: Code.RESOURCE_EXHAUSTED,
    QueryTimeoutError: Code.DEADLINE_EXCEEDED,
    NotFoundError: Code.NOT_FOUND,
    AccessError: Code.PERMISSION_DENIED,
    UnauthenticatedError: Code.UNAUTHENTICATED,
    PermissionDeniedError: Code.PERMISSION_DENIED,
    RateLimitError: Code.RESOURCE_EXHAUSTED,
    QuotaError: Code.RESOURCE_EXHAUSTED,
    PredicateError: Code.FAILED_PRECONDITION,
    BehindHorizonError: Code.OUT_OF_RANGE,
    LogClosedError: Code.UNAVAILABLE,
    SourceAbilityError: Code.FAILED_PRECONDITION,
    KeyValueError: Code.FAILED_PRECONDITION,
    SourceUnavailableError: Code.UNAVAILABLE,
}
"""Code of each error; one that is not named has that of the nearest class above it."""

SHUT_DOWN = "CDC engine shut down"
"""SochDB's text for a server that stops."""

DISABLED = "CDC not enabled"
"""SochDB's text for a server that captures nothing."""

_INTERNAL = "internal error: see the log of the server"


def status_of(error: TailraceError) -> StatusError:
    """Return the status that tells a client of an error. Internal errors are described only in the server's log."""
    code = next(CODES[kind] for kind in type(error).__mro__ if kind in CODES)
    trailing: Metadata = ()
    match error:
        case BehindHorizonError():
            message = f"CDC overrun: requested seq {error.requested} but oldest available is {error.horizon}"
            trailing = (
                ("x-tailrace-requested", str(error.requested)),
                ("x-tailrace-oldest", str(error.horizon)),
            )
        case BeyondHeadError():
            message = str(error)
            trailing = (("x-tailrace-requested", str(error.requested)), ("x-tailrace-head", str(error.head)))
        case RateLimitError():
            message = str(error)
            trailing = (("retry-after-ms", str(error.retry_after_ms)),)
        case LogClosedError():
            message = SHUT_DOWN
        case CaptureDisabledError():
            message = DISABLED
        case _:
            message = _INTERNAL if code is Code.INTERNAL else str(error)
    return StatusError(code, message, trailing)
