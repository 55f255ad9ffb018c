"""Messages of protobuf as the bytes that calls carry. Pure."""

from collections.abc import Callable
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from tailrace.delivery.grpc.call import StatusCode, StatusError

__all__ = ["decoded", "encoded"]

_Request = TypeVar("_Request", bound=Message)


def decoded(kind: Callable[[], _Request], message: bytes) -> _Request:
    """Return the request that a message is.

    Raises:
        StatusError: It is none.
    """
    request = kind()
    try:
        request.ParseFromString(message)
    except DecodeError:
        name = request.DESCRIPTOR.full_name
        raise StatusError(StatusCode.INVALID_ARGUMENT, f"the request is not a valid {name}") from None
    return request


def encoded(answer: Message) -> bytes:
    """Return the message of an answer."""
    data: bytes = answer.SerializeToString()
    return data
