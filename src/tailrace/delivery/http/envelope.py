"""The envelope of an RPC request and its answer. Pure.

Request: `{"skeinql":"1.0","id":1,"method":"system.ping","params":{}}`; `id` is a string or an integer, and a request
without one is a notification. Answer: `id`, `ok`, then `result` or `error`.
"""

from http import HTTPStatus
from typing import Any, TypeVar

import msgspec
from msgspec import Raw, Struct

from tailrace.delivery.problem import Problem
from tailrace.model.errors import InvalidRequestError

__all__ = [
    "NOT_SUPPORTED",
    "UNSUPPORTED_VERSION",
    "VERSION",
    "EnvelopeError",
    "ErrorAnswer",
    "RpcRequest",
    "decode_params",
    "decode_request",
    "encode_error",
    "encode_result",
]

VERSION = "1.0"
"""The one version of the envelope."""

NOT_SUPPORTED = "not_supported"
"""Code of an answer to a call of a method that is not there."""

UNSUPPORTED_VERSION = "unsupported_version"
"""Code of an answer to an envelope of another version."""

_RequestId = str | int | None
_P = TypeVar("_P", bound=Struct)


class RpcRequest(Struct, frozen=True):
    """A request whose `params` are still to be decoded by its method."""

    skeinql: str
    method: str
    id: _RequestId = None
    params: Raw = Raw(b"{}")


class EnvelopeError(Exception):
    """A body that is no request. `status` says whether it is no JSON at all (400) or no envelope (422)."""

    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.status = status


class _Result(Struct, frozen=True):
    id: _RequestId
    ok: bool
    result: Any


class ErrorAnswer(Struct, frozen=True):
    """An answer that tells of an error. `id` is null where the request had none or could not be read."""

    id: _RequestId
    ok: bool
    error: Problem


_DECODER = msgspec.json.Decoder(RpcRequest)
_BROKEN = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def decode_request(body: bytes) -> RpcRequest:
    """Return the request in a body. Members that the envelope does not know are ignored.

    Raises:
        EnvelopeError: It is not one; the message names the member at fault.
    """
    try:
        return _DECODER.decode(body)
    except msgspec.ValidationError as error:
        raise EnvelopeError(HTTPStatus.UNPROCESSABLE_ENTITY, f"not a request envelope: {error}") from error
    except _BROKEN as error:
        raise EnvelopeError(HTTPStatus.BAD_REQUEST, f"the body is not valid JSON: {error}") from error


def decode_params(request: RpcRequest, kind: type[_P]) -> _P:
    """Return the params of a request as its method takes them.

    Raises:
        InvalidRequestError: A member is missing, unknown or ill-typed; the message names it.
    """
    try:
        return msgspec.json.decode(request.params, type=kind)
    except _BROKEN as error:
        raise InvalidRequestError(f"params of {request.method}: {error}") from error


def encode_result(request_id: _RequestId, result: Struct) -> bytes:
    """Return the body of a good answer."""
    return msgspec.json.encode(_Result(request_id, True, result))


def encode_error(request_id: _RequestId, problem: Problem) -> bytes:
    """Return the body of an answer that tells of an error."""
    return msgspec.json.encode(ErrorAnswer(request_id, False, problem))
