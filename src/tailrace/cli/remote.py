"""A running server, seen from the command line: calls and event streams over HTTP."""

from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any, Self

import httpx
from msgspec import json as msgspec_json

from tailrace.model.errors import TailraceError

__all__ = ["RemoteError", "RemoteServer"]

_ANSWER_TIMEOUT_S = 10.0


class RemoteError(TailraceError):
    """The server refused, or could not be reached. The message says which."""


class RemoteServer:
    """One server by its address, e.g. `http://127.0.0.1:8080`."""

    def __init__(self, url: str, token: str | None = None) -> None:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._http = httpx.AsyncClient(base_url=url, headers=headers, timeout=_ANSWER_TIMEOUT_S, trust_env=False)
        self.url = url

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._http.aclose()

    async def call(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Call a method and return its result.

        Raises:
            RemoteError: The server answered with an error, or not at all.
        """
        request = {"skeinql": "1.0", "id": 1, "method": method, "params": params}
        try:
            answer = msgspec_json.decode((await self._http.post("/api/v1/rpc", json=request)).content)
        except (httpx.HTTPError, ValueError) as error:
            raise RemoteError(f"{self.url}: {str(error) or type(error).__name__}") from error
        if not answer.get("ok"):
            raise RemoteError(f"{method}: {answer.get('error', {}).get('message', 'no answer')}")
        result: dict[str, Any] = answer["result"]
        return result

    async def events(self, path: str) -> AsyncIterator[tuple[str, bytes]]:
        """Yield the name and the data of each event of a stream, until the server ends it.

        Raises:
            RemoteError: The stream was refused or broke.
        """
        try:
            async with self._http.stream("GET", path, timeout=httpx.Timeout(_ANSWER_TIMEOUT_S, read=None)) as answer:
                if answer.status_code != httpx.codes.OK:
                    await answer.aread()
                    raise RemoteError(f"{path}: {answer.status_code} {answer.text}")
                async for event in _parse_events(answer.aiter_bytes()):
                    yield event
        except httpx.HTTPError as error:
            raise RemoteError(f"{self.url}: {str(error) or type(error).__name__}") from error


async def _parse_events(pieces: AsyncIterator[bytes]) -> AsyncIterator[tuple[str, bytes]]:
    """Yield the name and data of server-sent events. Only a line feed ends a line: data may hold other separators."""
    name, rest = "message", b""
    async for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            field, _, text = line.partition(b": ")
            if field == b"event":
                name = text.decode()
            elif field == b"data":
                yield name, text
