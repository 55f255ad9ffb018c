"""What object storage says, by whichever library, and what it means to a pipeline. Pure."""

import re

from tailrace.model.errors import SinkError, SinkRefusedError, SinkUnavailableError

__all__ = ["object_error", "said_by_objects"]

_REFUSING = {
    r"NoSuchBucket|NO_SUCH_BUCKET|ContainerNotFound|The specified bucket does not exist": (
        "there is no such bucket: make it, or fix the sink's URL"
    ),
    r"InvalidAccessKeyId|SignatureDoesNotMatch|InvalidClientTokenId|INVALID_ACCESS_KEY_ID|SIGNATURE_DOES_NOT_MATCH|"
    r"ExpiredToken|InvalidToken|AuthenticationFailed|401 Unauthorized|Unauthenticated": (
        "the object storage does not accept the credentials: fix them in the environment or the sink's options"
    ),
    r"AccessDenied|ACCESS_DENIED|403 Forbidden|HTTP status 403|lacked the required privileges|PermissionDenied": (
        "the object storage denies access: allow this user to list, get, put and delete objects there"
    ),
    r"PermanentRedirect|AuthorizationHeaderMalformed|incorrectly configured region": (
        "the bucket is in another region: name it with the sink's option region, or AWS_REGION"
    ),
    r"169\.254\.169\.254|169\.254\.170\.2|metadata\.google\.internal|CredentialsNotLoaded|credential provider": (
        "no credentials were found for the object storage: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (or what "
        "the service has in their place), or name them in the sink's options"
    ),
    r"NotImplemented|501 Not Implemented": (
        "the object storage cannot put conditionally (If-None-Match), which exactly-once delivery needs: use another"
    ),
}
"""What nobody can wait for, by what the libraries say of it."""

_THROTTLED = re.compile(r"SlowDown|SLOW_DOWN|TooManyRequests|429 Too Many|Please reduce your request rate")


_OBJECTS = re.compile(r"Generic (S3|GCS|MicrosoftAzure) error|non-2xx status code|AWS Error")


def said_by_objects(text: str) -> bool:
    """Tell whether what a library says comes from object storage."""
    return bool(_OBJECTS.search(text))


def object_error(what: str, text: str) -> SinkError:
    """Return the error of a sink, or of a part of it, for what a library says of object storage.

    Its own words are not repeated: they may hold names of keys and parts of requests.
    """
    for pattern, reason in _REFUSING.items():
        if re.search(pattern, text):
            return SinkRefusedError(f"{what}: {reason}")
    if _THROTTLED.search(text):
        return SinkUnavailableError(f"{what}: the object storage asks for fewer requests")
    return SinkUnavailableError(f"{what}: the object storage does not answer as it should")
