"""The envelope of a call and its answer, seen from the client. Pure."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, TypeVar

import msgspec
from msgspec import Raw, Struct

from tailrace.client.errors import STATUSES, BadAnswer, ClientError, ConnectionFailed, refusal

__all__ = ["PATH", "decode_answer", "encode_call", "error_of_status"]

PATH = "/api/v1/rpc"

_VERSION = "1.0"
_TEXT_MAX = 500
"""Most characters of a foreign text that a message quotes."""

_R = TypeVar("_R")


class _Call(Struct, frozen=True):
    skeinql: str
    id: int
    method: str
    params: Mapping[str, Any]


class _Problem(Struct, frozen=True):
    code: str
    message: str
    details: dict[str, Any] | None = None


class _Answer(Struct, frozen=True):
    ok: bool
    result: Raw = Raw()
    error: _Problem | None = None


def encode_call(method: str, params: Mapping[str, Any]) -> bytes:
    """Return the body of a call. One connection carries one call at a time, so all have the same id."""
    return msgspec.json.encode(_Call(_VERSION, 1, method, params))


def decode_answer(status: int, body: bytes, kind: type[_R]) -> _R:
    """Return the result in an answer.

    Raises:
        ClientError: The answer tells of an error, or is none.
    """
    try:
        answer = msgspec.json.decode(body, type=_Answer)
    except ValueError:
        raise error_of_status(status, body) from None
    if answer.error is not None:
        raise refusal(answer.error.code, answer.error.message, answer.error.details)
    if not answer.ok or not bytes(answer.result):
        raise BadAnswer("the answer has neither result nor error")
    try:
        return msgspec.json.decode(answer.result, type=kind)
    except ValueError as error:
        raise BadAnswer(f"the result is not as expected: {error}") from error


def error_of_status(status: int, body: bytes) -> ClientError:
    """Return the error for an HTTP answer without an envelope, by its status alone.

    Whoever stands in front of a server that is away answers 429, 502, 503 or 504, and a server that stops 503: that is
    the same as not reaching it.
    """
    text = body[:_TEXT_MAX].decode("utf-8", "replace").strip()
    if status in _AWAY:
        return ConnectionFailed(f"the server is not available now: HTTP {status} {text}".rstrip())
    if status in STATUSES:
        return refusal(STATUSES[status], text or HTTPStatus(status).phrase)
    return BadAnswer(f"HTTP {status} is no answer of a Tailrace server")


_AWAY = {
    HTTPStatus.TOO_MANY_REQUESTS,
    HTTPStatus.BAD_GATEWAY,
    HTTPStatus.SERVICE_UNAVAILABLE,
    HTTPStatus.GATEWAY_TIMEOUT,
}
