"""HTTP to one server: settings, calls, and the opening of streams. Thin shell around httpx."""

import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any, TypeVar

import httpx
from msgspec import Struct

from tailrace.client.errors import BadAnswer, ConnectionFailed
from tailrace.client.rpc import PATH, decode_answer, encode_call, error_of_status, unreached
from tailrace.model.errors import ConfigError
from tailrace.retry import Backoff

__all__ = ["ClientOptions", "Transport"]


class ClientOptions(Struct, frozen=True):
    """Settings of a client."""

    connect_timeout_s: float = 5.0
    """Longest time to make a connection."""

    answer_timeout_s: float = 30.0
    """Longest silence before a call counts as failed; a poll that waits has that much on top of its wait."""

    idle_s_max: float = 45.0
    """Longest silence on a stream before its connection counts as dead: three keep-alive comments of the server."""

    backoff: Backoff = Backoff(first_s=0.1, longest_s=10.0)
    """Pauses between attempts to get a broken stream back."""

    outage_s_max: float | None = None
    """Longest time that a stream tries to get back before it raises `ConnectionFailed`; None tries for ever."""

    connections_max: int = 1024
    """Most connections at one time; each open stream has one."""

    event_bytes_max: int = 64 << 20
    """Largest event of a stream."""


_R = TypeVar("_R")


class Transport:
    """Connections to one server. For tasks of one event loop.

    Raises:
        ConfigError: The URL is not the address of a server.
    """

    def __init__(
        self, url: str, token: str | None, options: ClientOptions, transport: httpx.AsyncBaseTransport | None
    ) -> None:
        self.url = _checked(url)
        self.options = options
        self._http = httpx.AsyncClient(
            base_url=self.url,
            headers={"Authorization": f"Bearer {token}"} if token else {},
            timeout=self._timeout(options.answer_timeout_s),
            limits=httpx.Limits(max_connections=options.connections_max),
            transport=transport,
            verify=_trusted() if self.url.startswith("https:") else True,
            trust_env=False,
        )

    async def aclose(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    async def call(self, method: str, params: Mapping[str, Any], kind: type[_R], *, wait_s: float = 0.0) -> _R:
        """Call a method that may take `wait_s` longer than others; return its result.

        Raises:
            ConnectionFailed: No answer came.
            Refused: The server answered with an error.
            BadAnswer: The answer is none of a Tailrace server.
        """
        with self.reached():
            answer = await self._http.post(
                PATH,
                content=encode_call(method, params),
                headers={"Content-Type": "application/json"},
                timeout=self._timeout(self.options.answer_timeout_s + wait_s),
            )
        return decode_answer(answer.status_code, answer.content, kind)

    async def open(self, path: str, last_id: str) -> httpx.Response:
        """Open an event stream behind the event `last_id`; empty for where the subscription stands.

        Raises:
            ConnectionFailed: The server was not reached, or is not available now.
            Refused: The server refused the stream.
            BadAnswer: What came is no stream of events.
        """
        headers = {"Accept": "text/event-stream", "Accept-Encoding": "identity", "Cache-Control": "no-store"}
        if last_id:
            headers["Last-Event-ID"] = last_id
        timeout = self._timeout(self.options.idle_s_max)
        with self.reached():
            request = self._http.build_request("GET", path, headers=headers, timeout=timeout)
            answer = await self._http.send(request, stream=True)
            try:
                if answer.status_code != HTTPStatus.OK:
                    raise error_of_status(answer.status_code, await answer.aread())
                content_type = answer.headers.get("Content-Type", "")
                if not content_type.startswith("text/event-stream"):
                    raise BadAnswer(f"{path} answers {content_type or 'nothing'}, not a stream of events")
            except BaseException:
                await answer.aclose()
                raise
        return answer

    @contextmanager
    def reached(self) -> Iterator[None]:
        """Turn the failures of httpx inside a `with` block into `ConnectionFailed`."""
        try:
            yield
        except httpx.HTTPError as error:
            raise ConnectionFailed(unreached(self.url, error)) from error

    def _timeout(self, read_s: float) -> httpx.Timeout:
        connect_s = self.options.connect_timeout_s
        return httpx.Timeout(connect=connect_s, read=read_s, write=connect_s, pool=connect_s)


def _trusted() -> ssl.SSLContext:
    """Return what servers are verified by: the public authorities, those of the machine, and those of SSL_CERT_FILE."""
    context = httpx.create_ssl_context(trust_env=False)
    context.load_default_certs()
    return context


def _checked(url: str) -> str:
    """Return the address of a server without a slash at its end."""
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL:
        parsed = httpx.URL()
    if parsed.scheme not in {"http", "https"} or not parsed.host:
        raise ConfigError(f"{url!r} is not the address of a server: write e.g. http://127.0.0.1:8080")
    return url.rstrip("/")
