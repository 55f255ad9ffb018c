"""HTTP answers with a JSON body."""

from collections.abc import Mapping
from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import Response

from tailrace.delivery.http.envelope import encode_error
from tailrace.delivery.problem import Problem

__all__ = ["CODES", "json_answer", "problem_answer", "want_upgrade"]

CODES = {
    HTTPStatus.UNAUTHORIZED: "unauthorized",
    HTTPStatus.NOT_FOUND: "not_found",
    HTTPStatus.REQUEST_TIMEOUT: "timeout",
}
"""Code of an error envelope by HTTP status; `invalid_request` for all others."""


def json_answer(status: HTTPStatus, body: bytes, headers: Mapping[str, str] | None = None) -> Response:
    """Return an answer with a JSON body."""
    return Response(body, status, headers, media_type="application/json")


def problem_answer(status: HTTPStatus, message: str, headers: Mapping[str, str] | None = None) -> Response:
    """Return an error envelope for a request that never became a call. The connection is closed behind it."""
    problem = Problem(CODES.get(status, "invalid_request"), message)
    return json_answer(status, encode_error(None, problem), {**(headers or {}), "Connection": "close"})


async def want_upgrade(_request: Request) -> Response:
    """Answer a plain request for a WebSocket."""
    headers = {"Upgrade": "websocket"}
    return problem_answer(HTTPStatus.UPGRADE_REQUIRED, "this path is for WebSocket connections", headers)
