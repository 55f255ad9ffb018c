"""What object storage says, and what it means to a pipeline."""

import pytest

from tailrace.model.errors import SinkRefusedError, SinkUnavailableError
from tailrace.pipeline.sink.object_error import object_error, said_by_objects

REFUSED = [
    ("404 Not Found: <Code>NoSuchBucket</Code>", "no such bucket"),
    ("When listing objects: AWS Error NO_SUCH_BUCKET during ListObjectsV2", "no such bucket"),
    ("403 Forbidden: <Code>InvalidAccessKeyId</Code>", "does not accept the credentials"),
    ("403 Forbidden: <Code>SignatureDoesNotMatch</Code>", "does not accept the credentials"),
    ("400 Bad Request: <Code>ExpiredToken</Code>", "does not accept the credentials"),
    ("403 Forbidden: <Code>AccessDenied</Code>", "denies access"),
    ("AWS Error ACCESS_DENIED during PutObject operation", "denies access"),
    ("Received redirect without LOCATION, this normally indicates an incorrectly configured region", "another region"),
    ("Error performing PUT http://169.254.169.254/latest/api/token", "no credentials were found"),
    ("501 Not Implemented: a header you provided", "cannot put conditionally"),
]


@pytest.mark.parametrize(("text", "reason"), REFUSED)
def test_what_does_not_pass_by_itself_is_refused_with_what_to_do(text, reason):
    error = object_error("the sink in s3://lake", f"Generic S3 error: {text} for key s3cret")
    assert isinstance(error, SinkRefusedError)
    assert reason in str(error)
    assert "s3://lake" in str(error)
    assert "s3cret" not in str(error)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("503 Service Unavailable: <Code>SlowDown</Code>", "asks for fewer requests"),
        ("AWS Error SLOW_DOWN during PutObject", "asks for fewer requests"),
        ("500 Internal Server Error", "does not answer as it should"),
        ("HTTP error: error sending request: connection reset", "does not answer as it should"),
        ("operation timed out", "does not answer as it should"),
    ],
)
def test_what_may_pass_by_itself_is_worth_another_try(text, reason):
    error = object_error("the sink in s3://lake", text)
    assert isinstance(error, SinkUnavailableError)
    assert reason in str(error)


def test_what_object_storage_says_is_told_from_what_a_disk_says():
    assert said_by_objects("Generic S3 error: Server returned non-2xx status code")
    assert not said_by_objects("Failed to write: Permission denied (os error 13)")
