"""Errors as each interface shows them. The only place that knows. Pure."""

from msgspec import Struct

from tailrace.model.errors import (
    AccessError,
    AppendTooLargeError,
    BehindHorizonError,
    BeyondHeadError,
    CaptureDisabledError,
    CommitsLostError,
    ConfigError,
    ConsumerEndedError,
    ConsumerExistsError,
    ConsumersFullError,
    CorruptSegmentError,
    DataDirectoryInUseError,
    FormatVersionError,
    HostRefusedError,
    InvalidPredicateError,
    InvalidRequestError,
    InvalidValueError,
    KeyValueError,
    ListenError,
    LogClosedError,
    LogError,
    LogFullError,
    LogWriteError,
    MetadataError,
    NotFoundError,
    OriginRefusedError,
    PermissionDeniedError,
    PipelineExistsError,
    PredicateError,
    QueryTimeoutError,
    QuotaError,
    RateLimitError,
    ResultTooLargeError,
    SinkError,
    SinkRefusedError,
    SinkUnavailableError,
    SourceAbilityError,
    SourceError,
    SourceOptionError,
    SourceStateError,
    SourceUnavailableError,
    TailraceError,
    UnauthenticatedError,
    UnknownConsumerError,
    UnknownPipelineError,
    UnknownQueryError,
    UnknownSchemeError,
    UnknownSourceError,
    UnknownSubscriptionError,
    UnknownTableError,
)

__all__ = ["TABLE", "Problem", "problem_of"]

TABLE: dict[type[TailraceError], str] = {
    TailraceError: "internal",
    ConfigError: "internal",
    UnknownSchemeError: "internal",
    SourceOptionError: "internal",
    InvalidRequestError: "invalid_request",
    InvalidValueError: "invalid_request",
    InvalidPredicateError: "invalid_request",
    BeyondHeadError: "invalid_request",
    CaptureDisabledError: "conflict",
    ResultTooLargeError: "invalid_request",
    QueryTimeoutError: "timeout",
    NotFoundError: "not_found",
    UnknownSourceError: "not_found",
    UnknownTableError: "not_found",
    UnknownSubscriptionError: "not_found",
    UnknownConsumerError: "not_found",
    UnknownQueryError: "not_found",
    UnknownPipelineError: "not_found",
    PipelineExistsError: "conflict",
    AccessError: "forbidden",
    UnauthenticatedError: "unauthorized",
    PermissionDeniedError: "forbidden",
    RateLimitError: "rate_limited",
    QuotaError: "rate_limited",
    HostRefusedError: "forbidden",
    OriginRefusedError: "forbidden",
    PredicateError: "conflict",
    BehindHorizonError: "conflict",
    CommitsLostError: "conflict",
    ConsumerExistsError: "conflict",
    ConsumerEndedError: "conflict",
    ConsumersFullError: "conflict",
    LogError: "internal",
    CorruptSegmentError: "internal",
    FormatVersionError: "internal",
    AppendTooLargeError: "internal",
    LogFullError: "internal",
    LogWriteError: "internal",
    LogClosedError: "internal",
    MetadataError: "internal",
    DataDirectoryInUseError: "internal",
    ListenError: "internal",
    SourceError: "internal",
    SourceAbilityError: "conflict",
    KeyValueError: "conflict",
    SourceUnavailableError: "internal",
    SourceStateError: "internal",
    SinkError: "internal",
    SinkUnavailableError: "internal",
    SinkRefusedError: "internal",
}
"""Code of each error in an answer of SkeinDB. Each class is named: a new one must be decided on."""

_DETAILS: dict[type[TailraceError], tuple[str, ...]] = {
    InvalidPredicateError: ("place",),
    BeyondHeadError: ("requested", "head"),
    BehindHorizonError: ("requested", "horizon"),
    RateLimitError: ("retry_after_ms",),
}
"""Fields of an error that a program can use, sent as `details`."""


class Problem(Struct, frozen=True, omit_defaults=True):
    """The `error` member of an answer."""

    code: str
    message: str
    details: dict[str, int] | None = None


def problem_of(error: TailraceError) -> Problem:
    """Return the error for a subscriber of SkeinDB."""
    fields = _DETAILS.get(type(error))
    details = None if fields is None else {field: getattr(error, field) for field in fields}
    return Problem(TABLE[type(error)], str(error), details)
