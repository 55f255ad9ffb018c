"""Messages into streams of NATS JetStream: `nats://[USER:PASSWORD@]HOST:PORT/SUBJECT.{table}`, over TLS `nats+tls://`.

A message has its id, subject and time in the header `Nats-Msg-Id`, its key in `tailrace-key`, its headers as headers,
and its value as the payload, which is empty for a tombstone, marked by the header `tailrace-tombstone`.
"""

import asyncio
import contextlib
import re
from collections.abc import Collection, Coroutine, Mapping, Sequence
from typing import Any

import nats.errors
import nats.js.errors
from msgspec import Struct
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import StreamConfig

from tailrace.message.base import Message, Refusal
from tailrace.message.target.header import TOMBSTONE_HEADER, ascii_json
from tailrace.message.target.loop_target import LoopTarget
from tailrace.message.target.option import seconds_of
from tailrace.message.target.trust import is_untrusted, trusting
from tailrace.model.errors import ConfigError, SinkError, SinkRefusedError, SinkUnavailableError
from tailrace.model.table import TableName
from tailrace.sink_url import SinkUrl, Spelling

__all__ = ["NatsOptions", "NatsTarget", "build"]

_PORT = 4222
_TIMEOUT_S = 30.0
_PENDING_MAX = 4000
"""Most messages that are on their way at the same time. The client's own limit is never met: with a time to wait for it
the client sends each message by itself.
"""

_PENDING_BYTES_MAX = 32 << 20
_KNOWN_S = 600
"""For how long a stream that is made here knows ids, so that a repeat is left out."""

_REFUSED_CODES = frozenset({10054})
"""JetStream's own codes for errors of one message: it is larger than the stream allows."""

_ODD = re.compile(r"[^A-Za-z0-9_-]")
_PLACEHOLDER = re.compile(r"\{[a-z]+\}")


class NatsOptions(Struct, frozen=True):
    """Where the server is, and where messages go. The password is not shown."""

    server: str
    subject: str
    stream: str
    user: str
    password: str
    token: str
    tls: bool
    authority: str | None
    timeout_s: float

    def __repr__(self) -> str:
        return f"NATS at {self.server}"


class _Stream(JetStreamContext):
    """JetStream as the client has it, but for what it says against a message: the client leaves the sender waiting."""

    async def _handle_async_reply(self, msg: Msg) -> None:
        try:
            await super()._handle_async_reply(msg)
        except nats.js.errors.APIError as error:
            waiting = self._publish_async_futures.get(msg.subject.rpartition(".")[2])
            if waiting is not None and not waiting.done():
                waiting.set_exception(error)


class NatsTarget(LoopTarget):
    """Subjects of one stream.

    Order: as given; a row is given once at a time, so that none overtakes itself where an answer is lost. Duplicates:
    a message that is given again is left out by the server for as long as its stream knows ids (ten minutes where the
    stream was made here), and is known by `Nats-Msg-Id` afterwards. Durability: each message is acknowledged by the
    stream, as safe as its storage and replicas are. Keeps no mark.
    """

    failures = (nats.errors.Error, OSError, TimeoutError)

    def __init__(self, options: NatsOptions) -> None:
        super().__init__("tailrace-nats")
        self._options = options
        self._subject = Spelling(options.subject, lambda text: _ODD.sub("_", text))
        self._client: Client | None = None
        self._stream: JetStreamContext | None = None
        self._subjects: set[str] = set()
        """Subjects that a stream takes, as far as it was looked since the connection was made."""

    def _disconnected(self) -> Coroutine[Any, Any, None] | None:
        client, self._client, self._stream = self._client, None, None
        self._subjects.clear()
        return None if client is None else _closed(client)

    def _failure(self, error: Exception) -> SinkError:
        return _failure(error, self._options)

    async def _connect(self) -> None:
        if self._client is not None and self._client.is_connected:
            return
        options, client = self._options, Client()
        problems: list[Exception] = []

        async def note(error: Exception) -> None:
            problems.append(error)

        try:
            await client.connect(
                options.server,
                error_cb=note,
                name="tailrace",
                user=options.user or None,
                password=options.password or None,
                token=options.token or None,
                tls=trusting(options.authority) if options.tls else None,
                tls_hostname=None,
                allow_reconnect=False,
                connect_timeout=max(1, round(min(options.timeout_s, _TIMEOUT_S))),
                max_reconnect_attempts=1,
            )
        except (nats.errors.Error, OSError, TimeoutError) as error:
            await _closed(client)
            raise (problems[-1] if problems else error) from None
        self._client = client
        self._subjects.clear()
        self._stream = _Stream(client, timeout=options.timeout_s, publish_async_max_pending=2 * _PENDING_MAX)

    async def _prepare(self, tables: Collection[TableName]) -> None:
        """Connect, and make the stream, unless the subject of each table has one. Tables may appear at any time."""
        await self._connect()
        assert self._stream is not None
        for subject in sorted(set(map(self._subject, tables)) - self._subjects):
            try:
                await self._stream.find_stream_name_by_subject(subject)
            except nats.js.errors.NotFoundError:
                config = StreamConfig(
                    name=self._options.stream,
                    subjects=[_PLACEHOLDER.sub("*", self._options.subject)],
                    duplicate_window=_KNOWN_S,
                )
                await self._stream.add_stream(config)
            self._subjects.add(subject)

    async def _publish(self, messages: Sequence[Message]) -> list[Refusal]:
        await self._prepare({message.change.schema.table for message in messages})
        assert self._client is not None
        assert self._stream is not None
        longest, refusals = self._client.max_payload, []
        pending: dict[int, asyncio.Future[Any]] = {}
        size_bytes = 0
        for place, message in enumerate(messages):
            payload, subject = message.value or b"", self._subject(message.change.schema.table)
            headers = {
                "Nats-Msg-Id": _known_as(message, subject),
                "content-type": message.content_type,
                "tailrace-key": ascii_json(message.key),
                **TOMBSTONE_HEADER[message.value is None],
                **dict(message.headers),
            }
            if len(payload) + _size_bytes(headers) > longest:
                refusals.append(Refusal(place, f"with its headers it is larger than the server's {longest} bytes"))
                continue
            pending[place] = await self._stream.publish_async(subject, payload, headers=headers)
            size_bytes += len(payload)
            if len(pending) == _PENDING_MAX or size_bytes > _PENDING_BYTES_MAX:
                refusals += await self._acknowledged(pending)
                pending, size_bytes = {}, 0
        refusals += await self._acknowledged(pending)
        return sorted(refusals, key=lambda refusal: refusal.place)

    async def _acknowledged(self, pending: dict[int, "asyncio.Future[Any]"]) -> list[Refusal]:
        """Wait for all acknowledgements; return those that are refusals of one message."""
        if not pending:
            return []
        _, late = await asyncio.wait(pending.values(), timeout=self._options.timeout_s)
        refusals = []
        problem: BaseException | None = None
        for place, one in pending.items():
            if one in late:
                one.cancel()
                continue
            error = one.exception()
            if isinstance(error, nats.js.errors.APIError) and error.err_code in _REFUSED_CODES:
                refusals.append(Refusal(place, "it is larger than the stream allows"))
            else:
                problem = problem or error
        if late:
            raise SinkUnavailableError("JetStream did not acknowledge in time")
        if problem is not None:
            raise problem
        return refusals


def _known_as(message: Message, subject: str) -> str:
    """Return by what a stream knows a message. Sinks may share a stream, and a log that is restarted has the same ids.

    Rows of a snapshot have the time at which they were read, which is another when they are read again.
    """
    known_as = f"{message.id}@{subject}"
    return known_as if message.snapshot else f"{known_as}@{message.change.commit_time_us}"


def _size_bytes(headers: Mapping[str, str]) -> int:
    """Return how long headers are where they are sent, which counts as part of the message."""
    return len(b"NATS/1.0\r\n\r\n") + sum(len(name) + len(text.encode()) + 4 for name, text in headers.items())


async def _closed(client: Client) -> None:
    """Disconnect. The client itself forgets its socket where connecting failed half-way."""
    socket = client._transport  # noqa: SLF001
    with contextlib.suppress(nats.errors.Error, OSError):
        await client.close()
    if socket is not None:
        with contextlib.suppress(OSError):
            socket.close()  # type: ignore[no-untyped-call]
            await socket.wait_closed()  # type: ignore[no-untyped-call]


def _failure(error: Exception, options: NatsOptions) -> SinkError:
    """Return what an error of the client means."""
    if isinstance(error, nats.js.errors.ServiceUnavailableError | nats.js.errors.ServerError):
        return SinkUnavailableError(f"JetStream cannot do it now: {error.description}")
    if isinstance(error, nats.js.errors.APIError):
        return SinkRefusedError(f"JetStream refuses: {error.description}")
    text = str(error).lower()
    if isinstance(error, nats.errors.AuthorizationError) or "authorization" in text or "authentication" in text:
        return SinkRefusedError("NATS does not accept the credentials")
    if "permissions violation" in text:
        return SinkRefusedError("NATS does not let the sink's user publish there")
    if is_untrusted(error):
        return SinkRefusedError("the certificate of NATS is not trusted: name its authority by the option `ca`")
    if isinstance(error, nats.js.errors.NoStreamResponseError):
        return SinkUnavailableError("no stream of NATS takes the subject now")
    return SinkUnavailableError(f"{options!r} cannot be reached: {type(error).__name__}")


def build(url: SinkUrl, name: str) -> NatsTarget:
    """Return the target of a `nats` or `nats+tls` URL.

    Raises:
        ConfigError: Something in it is wrong.
    """
    options = url.only("stream", "token", "ca", "timeout")
    subject = url.path.removeprefix("/")
    if not url.host or not subject or re.search(r"[\s/*>]|^\.|\.\.|\.$", subject):
        raise ConfigError(f"write a NATS sink as {url.scheme}://HOST:PORT/SUBJECT.{{table}}")
    host = f"[{url.host}]" if ":" in url.host else url.host
    return NatsTarget(
        NatsOptions(
            server=f"{'tls' if url.scheme.endswith('tls') else 'nats'}://{host}:{url.port or _PORT}",
            subject=subject,
            stream=options.get("stream") or f"tailrace-{_ODD.sub('_', name)}",
            user=url.user,
            password=url.password,
            token=options.get("token", ""),
            tls=url.scheme.endswith("tls"),
            authority=options.get("ca"),
            timeout_s=seconds_of(options, "timeout", _TIMEOUT_S),
        )
    )
