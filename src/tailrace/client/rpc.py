"""The envelope of a call and its answer, and why a server was not reached, seen from the client. Pure."""

import socket
import ssl
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from http.client import RemoteDisconnected
from typing import Any, TypeVar

import msgspec
from msgspec import Raw, Struct

from tailrace.client.errors import STATUSES, BadAnswer, ClientError, ConnectionFailed, refusal

__all__ = ["PATH", "decode_answer", "encode_call", "error_of_status", "unreached"]

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


_SILENT = ("without sending a response", "without response")
"""How the libraries put it that a server hung up before it answered."""


def unreached(url: str, error: BaseException) -> str:
    """Return what is said of a server at `url` that could not be reached, or did not answer, because of `error`."""
    causes = list(_causes(error))
    secure = url.startswith("https:")
    if any(isinstance(cause, ssl.SSLError) and cause.reason == "WRONG_VERSION_NUMBER" for cause in causes):
        return f"{url}: what answers there speaks http without TLS: write http:// instead of https://"
    for cause in causes:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return (
                f"{url}: its certificate is not trusted ({cause.verify_message}); "
                "SSL_CERT_FILE names a file with further authorities"
            )
    if any(isinstance(cause, socket.gaierror) for cause in causes):
        return f"{url}: there is no host of that name"
    if any(isinstance(cause, ConnectionRefusedError) for cause in causes):
        return f"{url}: nothing listens there; is the server running, and is this its address?"
    said = str(error) or type(error).__name__
    silent = isinstance(error, RemoteDisconnected) or any(words in said for words in _SILENT)
    return f"{url}: {said}; write https:// if the server has TLS" if silent and not secure else f"{url}: {said}"


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and those that it came from, members of groups included."""
    while error is not None:
        yield error
        if isinstance(error, BaseExceptionGroup):
            for member in error.exceptions:
                yield from _causes(member)
        error = error.__cause__ or error.__context__
