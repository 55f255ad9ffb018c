"""Errors as statuses of gRPC."""

import pytest

from tailrace.delivery.grpc.call import StatusCode
from tailrace.delivery.grpc.status import status_of
from tailrace.model.errors import (
    BehindHorizonError,
    BeyondHeadError,
    CaptureDisabledError,
    CorruptSegmentError,
    InvalidValueError,
    KeyValueError,
    LogClosedError,
    MetadataError,
    PermissionDeniedError,
    RateLimitError,
    ResultTooLargeError,
    SourceStateError,
    SourceUnavailableError,
    TailraceError,
    UnauthenticatedError,
    UnknownSourceError,
    UnknownSubscriptionError,
)


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (UnknownSourceError("x"), StatusCode.NOT_FOUND, "source 'x' not found"),
        (UnknownSubscriptionError("sub-1"), StatusCode.NOT_FOUND, "subscription sub-1 not found"),
        (InvalidValueError("no"), StatusCode.INVALID_ARGUMENT, "no"),
        (ResultTooLargeError("much"), StatusCode.RESOURCE_EXHAUSTED, "much"),
        (KeyValueError("own"), StatusCode.FAILED_PRECONDITION, "own"),
        (SourceUnavailableError("locked"), StatusCode.UNAVAILABLE, "locked"),
        (PermissionDeniedError("denied"), StatusCode.PERMISSION_DENIED, "denied"),
        (CaptureDisabledError(), StatusCode.FAILED_PRECONDITION, "CDC not enabled"),
        (LogClosedError("/var/log"), StatusCode.UNAVAILABLE, "CDC engine shut down"),
    ],
)
def test_an_error_has_its_code_and_says_what_is_wrong(error, code, message):
    status = status_of(error)
    assert (status.code, status.message, status.trailing) == (code, message, ())


@pytest.mark.parametrize(
    "error",
    [
        TailraceError("/secret/path"),
        MetadataError("/secret/path"),
        SourceStateError("/secret/path"),
        CorruptSegmentError("/secret/path", place=1, reason="bad"),
    ],
)
def test_what_is_wrong_inside_is_not_told(error):
    status = status_of(error)
    assert status.code is StatusCode.INTERNAL
    assert "secret" not in status.message


def test_an_overrun_has_seed_a_s_text_and_both_numbers():
    status = status_of(BehindHorizonError(requested=3, horizon=9))
    assert (status.code, status.message) == (
        StatusCode.OUT_OF_RANGE,
        "CDC overrun: requested seq 3 but oldest available is 9",
    )
    assert dict(status.trailing) == {"x-tailrace-requested": "3", "x-tailrace-oldest": "9"}


def test_a_place_that_the_log_has_not_reached_is_told_with_both_numbers():
    status = status_of(BeyondHeadError(requested=9, head=3))
    assert status.code is StatusCode.OUT_OF_RANGE
    assert dict(status.trailing) == {"x-tailrace-requested": "9", "x-tailrace-head": "3"}


def test_who_calls_too_often_is_told_when_to_come_again():
    assert dict(status_of(RateLimitError(retry_after_ms=7)).trailing) == {"retry-after-ms": "7"}


def test_who_is_not_known_is_unauthenticated():
    assert status_of(UnauthenticatedError()).code is StatusCode.UNAUTHENTICATED
