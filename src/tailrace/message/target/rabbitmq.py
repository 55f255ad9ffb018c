"""Messages into queues of RabbitMQ: `amqp://USER:PASSWORD@HOST:PORT/VHOST?queue={table}`, over TLS `amqps://`.

Without an exchange they go to a quorum queue of that name, which is made if it is missing; with one they go there, with
the name as routing key, and what is bound to it is up to you. A message has its id as `message_id`, its key in the
header `tailrace-key`, its headers as headers, its value as the body, which is empty for a tombstone: that is marked by
the header `tailrace-tombstone`.
"""

import asyncio
import contextlib
import logging
import re
from collections.abc import Collection, Coroutine, Sequence
from typing import Any

import aio_pika
from aio_pika.abc import AbstractConnection, AbstractExchange
from aio_pika.exceptions import (
    AMQPError,
    AuthenticationError,
    ChannelNotFoundEntity,
    ChannelPreconditionFailed,
    DeliveryError,
    InvalidFrameError,
    ProbableAuthenticationError,
    PublishError,
)
from aiormq.exceptions import ChannelAccessRefused, ConnectionNotAllowed
from msgspec import Struct

from tailrace.message.base import Message, Refusal
from tailrace.message.target.header import TOMBSTONE_HEADER, ascii_json
from tailrace.message.target.loop_target import LoopTarget
from tailrace.message.target.option import choice_of, number_of, seconds_of
from tailrace.message.target.trust import is_untrusted, trusting
from tailrace.model.errors import ConfigError, SinkError, SinkRefusedError, SinkUnavailableError
from tailrace.model.table import TableName
from tailrace.sink_url import SinkUrl, Spelling

__all__ = ["RabbitOptions", "RabbitTarget", "build"]

_TIMEOUT_S = 30.0
_BODY_BYTES_MAX = 134_217_728
"""Largest body that a server takes unless it is configured otherwise."""

_PENDING_MAX = 1000
"""Most messages that are on their way at the same time."""

_CLOSING_S = 2.0
_TABLE = "{table}"
_ODD = re.compile(r"[^A-Za-z0-9_.:-]")
"""What the client does not let the name of a queue hold."""

_NO_ROUTE = "no queue takes it: bind one to the exchange"
_GONE = "a queue of RabbitMQ has gone: declaring it again"
_TOO_LARGE = "it is larger than the server allows"
_LIMIT = re.compile(r"max size (\d+)")
"""Where the server says, closing the channel, how large a message may be."""


class RabbitOptions(Struct, frozen=True):
    """Where the server is, and where messages go. The password is not shown."""

    host: str
    port: int
    virtual_host: str
    user: str
    password: str
    exchange: str
    queue: str
    queue_type: str
    body_bytes_max: int
    tls: bool
    authority: str | None
    timeout_s: float

    def __repr__(self) -> str:
        return f"RabbitMQ at {self.host}:{self.port}"


class RabbitTarget(LoopTarget):
    """Queues of a virtual host, or an exchange.

    Order: as given, in each queue; a row is given once at a time, so that none overtakes itself where an answer is
    lost. Duplicates: a message that is given again is there again, and is known by its `message_id`. Durability: each
    message is persistent and confirmed by the server, which for a quorum queue means by most of its replicas. A message
    that no queue takes is refused. Keeps no mark.
    """

    failures = (AMQPError, OSError, RuntimeError, TimeoutError)

    def __init__(self, options: RabbitOptions) -> None:
        super().__init__("tailrace-rabbitmq")
        self._options = options
        self._name = Spelling(options.queue, lambda text: _ODD.sub("_", text))
        self._connection: AbstractConnection | None = None
        self._exchange: AbstractExchange | None = None
        self._declared: set[str] = set()
        self._body_bytes_max = options.body_bytes_max
        self._in_doubt = False
        """Whether messages were sent last that the server has not confirmed: it may have them all the same."""

    def _disconnected(self) -> Coroutine[Any, Any, None] | None:
        connection, self._connection, self._exchange = self._connection, None, None
        self._declared.clear()
        return None if connection is None else _closed(connection)

    def _failure(self, error: Exception) -> SinkError:
        return _failure(error, self._options)

    async def _prepare(self, tables: Collection[TableName]) -> None:
        """Connect, and make queues that are missing, once; one that is there stays as it is."""
        async with asyncio.timeout(self._options.timeout_s):
            await self._connect()
            for queue in () if self._options.exchange else map(self._name, tables):
                if queue not in self._declared:
                    await self._declare(queue)
                    self._declared.add(queue)

    async def _connect(self) -> None:
        options = self._options
        if self._connection is not None and not self._connection.is_closed:
            return
        self._declared.clear()
        self._connection = await aio_pika.connect(
            host=options.host,
            port=options.port,
            login=options.user,
            password=options.password,
            virtualhost=options.virtual_host,
            ssl=options.tls,
            ssl_context=trusting(options.authority) if options.tls else None,
            timeout=options.timeout_s,
        )
        channel = await self._connection.channel(publisher_confirms=True, on_return_raises=True)
        named = await channel.get_exchange(options.exchange) if options.exchange else channel.default_exchange
        self._exchange = named

    async def _declare(self, queue: str) -> None:
        """Make a queue if it is missing; the server closes the channel of whoever asks for one that is not there."""
        assert self._connection is not None
        asking = await self._connection.channel(publisher_confirms=False)
        try:
            await asking.declare_queue(queue, passive=True)
            await asking.close()
        except ChannelNotFoundEntity:
            async with self._connection.channel(publisher_confirms=False) as making:
                await making.declare_queue(queue, durable=True, arguments={"x-queue-type": self._options.queue_type})

    async def _publish(self, messages: Sequence[Message]) -> list[Refusal]:
        await self._prepare({message.change.schema.table for message in messages})
        refusals, fitting = [], []
        for place, message in enumerate(messages):
            if len(message.value or b"") > self._body_bytes_max:
                refusals.append(Refusal(place, _TOO_LARGE))
            else:
                fitting.append(place)
        while fitting:
            size = 1 if self._in_doubt else _PENDING_MAX
            some, fitting = fitting[:size], fitting[size:]
            answers = await self._answers([messages[place] for place in some])
            self._learn_limit(answers)
            for place, answer in zip(some, answers, strict=True):
                if isinstance(answer, PublishError) and not self._options.exchange:
                    raise SinkUnavailableError(_GONE)
                if isinstance(answer, PublishError):
                    refusals.append(Refusal(place, _NO_ROUTE))
                elif isinstance(answer, DeliveryError):
                    raise SinkUnavailableError(
                        "RabbitMQ did not store a message: a queue is full, or replicas are unavailable"
                    )
                elif isinstance(answer, BaseException):
                    raise answer
        return sorted(refusals, key=lambda refusal: refusal.place)

    async def _answers(self, messages: Sequence[Message]) -> Sequence[object]:
        """Publish messages, and return what the server says to each.

        Raises:
            SinkUnavailableError: It says nothing in time. A server that is short of memory or disk reads nothing more,
                but has in its buffers what was sent, and keeps that later: then only one message is tried at first.
        """
        assert self._exchange is not None
        self._in_doubt = True
        sent = [
            self._exchange.publish(_message(one), self._name(one.change.schema.table), mandatory=True, timeout=None)
            for one in messages
        ]
        try:
            answers = await asyncio.wait_for(asyncio.gather(*sent, return_exceptions=True), self._options.timeout_s)
        except TimeoutError:
            raise SinkUnavailableError(f"{self._options!r} did not confirm in time: check its alarms") from None
        self._in_doubt = False
        return answers

    def _learn_limit(self, answers: Sequence[object]) -> None:
        """Find out how large a message may be, where the server has closed the channel because one was larger.

        Raises:
            SinkUnavailableError: It has: with the next try, those that are too large are refused by themselves.
        """
        for answer in answers:
            if isinstance(answer, ChannelPreconditionFailed) and (found := _LIMIT.search(str(answer))):
                self._body_bytes_max = int(found[1])
                raise SinkUnavailableError(f"RabbitMQ accepts no messages above {self._body_bytes_max} bytes")


def _message(message: Message) -> aio_pika.Message:
    """Return a message as AMQP has it. Attributes of CloudEvents have the names that they have there."""
    headers: dict[str, Any] = {
        f"cloudEvents:{name[3:]}" if name.startswith("ce-") else name: text for name, text in message.headers
    }
    headers |= {"tailrace-key": ascii_json(message.key), **TOMBSTONE_HEADER[message.value is None]}
    return aio_pika.Message(
        message.value or b"",
        headers=headers,
        content_type=message.content_type,
        delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
        message_id=message.id,
        timestamp=message.change.commit_time_us / 1_000_000,
    )


async def _closed(connection: AbstractConnection) -> None:
    with contextlib.suppress(AMQPError, OSError, RuntimeError, TimeoutError):
        await asyncio.wait_for(connection.close(), _CLOSING_S)


def _failure(error: Exception, options: RabbitOptions) -> SinkError:
    """Return what an error of the client means."""
    if isinstance(error, ProbableAuthenticationError | AuthenticationError):
        return SinkRefusedError("RabbitMQ does not accept the credentials")
    if isinstance(error, ConnectionNotAllowed | InvalidFrameError):  # the latter is what the client makes of it
        return SinkRefusedError("RabbitMQ has no such virtual host, or does not let the sink's user in")
    if isinstance(error, ChannelNotFoundEntity) and options.exchange:
        return SinkRefusedError("RabbitMQ has no exchange of the name that the sink has: make it")
    if isinstance(error, ChannelAccessRefused | ChannelNotFoundEntity | ChannelPreconditionFailed):
        return SinkRefusedError(f"RabbitMQ refuses: {type(error).__name__}; see what the sink's user may do there")
    if is_untrusted(error):
        return SinkRefusedError("the certificate of RabbitMQ is not trusted: name its authority by the option `ca`")
    return SinkUnavailableError(f"{options!r} cannot be reached: {type(error).__name__}")


def build(url: SinkUrl, name: str) -> RabbitTarget:
    """Return the target of an `amqp` or `amqps` URL.

    Raises:
        ConfigError: Something in it is wrong.
    """
    options = url.only("exchange", "queue", "queue_type", "max_bytes", "ca", "timeout")
    for library in ("aiormq", "aio_pika"):  # they tell each broken connection at length; we tell it in our own words
        logging.getLogger(library).setLevel(logging.CRITICAL)
    queue, tls = options.get("queue", _TABLE), url.scheme == "amqps"
    if not url.host or not queue:
        raise ConfigError(f"write a RabbitMQ sink as {url.scheme}://USER:PASSWORD@HOST:PORT/VHOST?queue={{table}}")
    return RabbitTarget(
        RabbitOptions(
            host=url.host,
            port=url.port or (5671 if tls else 5672),
            virtual_host=url.path.removeprefix("/") or "/",
            user=url.user or "guest",
            password=url.password or "guest",
            exchange=options.get("exchange", ""),
            queue=queue,
            queue_type=choice_of(options, "queue_type", "quorum", "classic"),
            body_bytes_max=number_of(options, "max_bytes", _BODY_BYTES_MAX, least=1),
            tls=tls,
            authority=options.get("ca"),
            timeout_s=seconds_of(options, "timeout", _TIMEOUT_S),
        )
    )
