"""Errors as statuses of gRPC. Pure."""

from tailrace.delivery.grpc.call import Metadata, StatusCode, StatusError
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

CODES: dict[type[TailraceError], StatusCode] = {
    TailraceError: StatusCode.INTERNAL,
    InvalidRequestError: StatusCode.INVALID_ARGUMENT,
    CaptureDisabledError: StatusCode.FAILED_PRECONDITION,
    BeyondHeadError: StatusCode.OUT_OF_RANGE,
    ResultTooLargeError: StatusCode.RESOURCE_EXHAUSTED,
    QueryTimeoutError: StatusCode.DEADLINE_EXCEEDED,
    NotFoundError: StatusCode.NOT_FOUND,
    AccessError: StatusCode.PERMISSION_DENIED,
    UnauthenticatedError: StatusCode.UNAUTHENTICATED,
    PermissionDeniedError: StatusCode.PERMISSION_DENIED,
    RateLimitError: StatusCode.RESOURCE_EXHAUSTED,
    QuotaError: StatusCode.RESOURCE_EXHAUSTED,
    PredicateError: StatusCode.FAILED_PRECONDITION,
    BehindHorizonError: StatusCode.OUT_OF_RANGE,
    LogClosedError: StatusCode.UNAVAILABLE,
    SourceAbilityError: StatusCode.FAILED_PRECONDITION,
    KeyValueError: StatusCode.FAILED_PRECONDITION,
    SourceUnavailableError: StatusCode.UNAVAILABLE,
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
            message = _INTERNAL if code is StatusCode.INTERNAL else str(error)
    return StatusError(code, message, trailing)
