"""Messages into queues of RabbitMQ: `amqp://USER:PASSWORD@HOST:PORT/VHOST?queue={table}`, over TLS `amqps://`.

Without an exchange they go to a quorum queue of that name, which is made if it is missing; with one they go there, with
the name as routing key, and what is bound to it is up to you. A message has its id as `message_id`, its key in the
header `tailrace-key`, its headers as headers, its value as the body, which is empty for a tombstone: that is told by
the header `tailrace-tombstone`.
"""

import ssl
from collections.abc import Callable, Sequence
from typing import Any

import pika
from msgspec import Struct
from pika.exceptions import AuthenticationError as WrongCredentialsError
from pika.exceptions import ChannelClosed, ConnectionClosed, ProbableAccessDeniedError, ProbableAuthenticationError

from tailrace.message.base import Message, Refusal
from tailrace.message.target.header import TOMBSTONE_HEADER, ascii_json
from tailrace.message.target.option import choice_of, number_of, seconds_of
from tailrace.model.errors import ConfigError, SinkError, SinkRefusedError, SinkUnavailableError
from tailrace.model.table import TableName, TableSchema
from tailrace.sink_url import SinkUrl, spelled

__all__ = ["RabbitOptions", "RabbitTarget", "build"]

_TIMEOUT_S = 30.0
_BODY_BYTES_MAX = 134_217_728
"""Largest body that a server takes unless it is configured otherwise."""

_PENDING_MAX = 2000
"""Most messages that are on their way at the same time."""

_WRONG_CREDENTIALS = (WrongCredentialsError, ProbableAuthenticationError, ProbableAccessDeniedError)
_PERSISTENT = 2
_NOT_FOUND = 404
_TABLE = "{table}"
_NO_ROUTE = "no queue takes it: bind one to the exchange"
_TOO_LARGE = "it is larger than the server allows"


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


class RabbitTarget:
    """Queues of a virtual host, or an exchange.

    Order: as given, in each queue; a row is given once at a time, so that none overtakes itself where an answer is
    lost. Duplicates: a message that is given again is there again, and is known by its `message_id`. Durability: each
    message is persistent and confirmed by the server, which for a quorum queue means by most of its replicas. A message
    that no queue takes is refused. Keeps no mark.
    """

    def __init__(self, options: RabbitOptions) -> None:
        self._options = options
        self._link: _Link | None = None
        self._declared: set[str] = set()

    def open(self, schemas: Sequence[TableSchema]) -> None:
        """Connect, and make the queues that are missing."""
        for schema in schemas:
            self._declare(spelled(self._options.queue, schema.table))
        if not schemas:
            self._linked()

    def mark(self) -> bytes | None:
        """A server keeps none."""
        return None

    def send(self, messages: Sequence[Message], mark: bytes) -> Sequence[Refusal]:
        """Publish messages and wait for all confirmations."""
        keys = [spelled(self._options.queue, message.change.schema.table) for message in messages]
        for key in dict.fromkeys(keys):
            self._declare(key)
        refusals: list[Refusal] = []
        fitting = []
        for place, message in enumerate(messages):
            if len(message.value or b"") > self._options.body_bytes_max:
                refusals.append(Refusal(place, _TOO_LARGE))
            else:
                fitting.append(place)
        for begin in range(0, len(fitting), _PENDING_MAX):
            some = fitting[begin : begin + _PENDING_MAX]
            link = self._linked()
            try:
                returned = link.publish(self._options.exchange, [(keys[place], messages[place]) for place in some])
            except SinkError:
                self.close()
                raise
            refusals += [Refusal(some[one], _NO_ROUTE) for one in returned]
        return sorted(refusals, key=lambda refusal: refusal.place)

    def close(self) -> None:
        """Disconnect."""
        if self._link is not None:
            self._link.close()
            self._link = None
            self._declared.clear()

    def _linked(self) -> "_Link":
        if self._link is None:
            self._link = _Link(self._options)
        return self._link

    def _declare(self, queue: str) -> None:
        """Make a queue if it is missing, once; one that is there stays as it is."""
        if self._options.exchange or queue in self._declared:
            return
        try:
            self._linked().declare(queue, self._options.queue_type)
        except SinkError:
            self.close()
            raise
        self._declared.add(queue)


class _Link:
    """A connection with one channel in confirm mode, whose loop runs while something is waited for.

    Heartbeats are off, as nobody would answer them in between; that a server has gone shows when it is used next.
    """

    def __init__(self, options: RabbitOptions) -> None:
        self._options = options
        self._problem: Exception | None = None
        self._channel: Any = None
        self._waiting: set[int] = set()
        self._nacked = False
        self._returned: list[str] = []
        self._tags = 0
        parameters = pika.ConnectionParameters(
            host=options.host,
            port=options.port,
            virtual_host=options.virtual_host,
            credentials=pika.PlainCredentials(options.user, options.password),
            heartbeat=0,
            connection_attempts=1,
            socket_timeout=options.timeout_s,
            stack_timeout=options.timeout_s,
            blocked_connection_timeout=options.timeout_s,
            ssl_options=pika.SSLOptions(_trusting(options.authority), options.host) if options.tls else None,
        )
        self._connection = pika.SelectConnection(
            parameters,
            on_open_callback=lambda _: self._open_channel(),
            on_open_error_callback=lambda _, error: self._fail(error),
            on_close_callback=lambda _, error: self._fail(error),
        )
        self._wait(lambda: self._channel is not None)

    def declare(self, queue: str, queue_type: str) -> None:
        """Make a queue if it is missing."""
        answers: list[Any] = []
        if isinstance(self._looked_up(queue), ChannelClosed):
            arguments = {"x-queue-type": queue_type}
            self._channel.queue_declare(queue, durable=True, arguments=arguments, callback=self._noting(answers))
            self._wait(lambda: bool(answers))

    def publish(self, exchange: str, messages: Sequence[tuple[str, Message]]) -> list[int]:
        """Publish messages with their routing keys, wait until all are confirmed, and return those without a queue.

        Raises:
            SinkUnavailableError: Not all were confirmed.
        """
        self._returned, self._nacked = [], False
        if self._problem is not None:
            raise _failure(self._problem)
        for key, message in messages:
            self._tags += 1
            self._waiting.add(self._tags)
            self._channel.basic_publish(exchange, key, message.value or b"", _properties(message), mandatory=True)
        self._wait(lambda: not self._waiting)
        if self._nacked:
            raise SinkUnavailableError("RabbitMQ did not keep a message: a queue is full, or its replicas are away")
        places = {message.id: place for place, (_, message) in enumerate(messages)}
        return [places[id_] for id_ in self._returned]

    def close(self) -> None:
        """Disconnect, without waiting long."""
        if not self._connection.is_closed and not self._connection.is_closing:
            self._connection.close()
        try:
            self._wait(lambda: False)
        except SinkError:
            return

    def _looked_up(self, queue: str) -> Any:
        """Ask for a queue on a channel of its own, which the server closes where there is none; return its answer."""
        answers: list[Any] = []
        note = self._noting(answers)

        def ask(channel: Any) -> None:
            channel.add_on_close_callback(lambda _, error: note(error))
            channel.queue_declare(queue, passive=True, callback=lambda answer: (note(answer), channel.close()))

        self._connection.channel(on_open_callback=ask)
        self._wait(lambda: bool(answers))
        if isinstance(answers[0], ChannelClosed) and answers[0].reply_code != _NOT_FOUND:
            raise _failure(answers[0])
        return answers[0]

    def _noting(self, answers: list[Any]) -> Callable[[Any], None]:
        """Return what notes an answer and lets the waiting end."""

        def note(answer: Any) -> None:
            answers.append(answer)
            self._connection.ioloop.stop()

        return note

    def _open_channel(self) -> None:
        self._connection.channel(on_open_callback=self._confirm)

    def _confirm(self, channel: Any) -> None:
        channel.add_on_close_callback(lambda _, error: self._fail(error))
        channel.add_on_return_callback(lambda _, how, properties, body: self._returned.append(properties.message_id))
        channel.confirm_delivery(self._confirmed, callback=lambda _: self._ready(channel))

    def _ready(self, channel: Any) -> None:
        self._channel, self._tags = channel, 0
        self._connection.ioloop.stop()

    def _confirmed(self, frame: Any) -> None:
        method = frame.method
        tag = method.delivery_tag
        if method.NAME.endswith("Nack"):
            self._nacked = True
        if method.multiple:
            self._waiting = {one for one in self._waiting if one > tag}
        else:
            self._waiting.discard(tag)
        if not self._waiting:
            self._connection.ioloop.stop()

    def _fail(self, error: Exception) -> None:
        self._problem = self._problem or error
        self._connection.ioloop.stop()

    def _wait(self, done: Callable[[], bool]) -> None:
        """Run the connection until something has happened."""
        loop = self._connection.ioloop
        late: list[Any] = []
        timer = loop.call_later(self._options.timeout_s, lambda: self._noting(late)(True))
        try:
            while not done():
                if self._problem is not None:
                    raise _failure(self._problem)
                if late:
                    raise SinkUnavailableError("RabbitMQ does not answer in time")
                loop.start()
        finally:
            loop.remove_timeout(timer)


def _properties(message: Message) -> pika.BasicProperties:
    """Return what goes beside the body. Attributes of CloudEvents have the names that they have in AMQP."""
    headers = {f"cloudEvents:{name[3:]}" if name.startswith("ce-") else name: text for name, text in message.headers}
    headers |= {"tailrace-key": ascii_json(message.key), **TOMBSTONE_HEADER[message.value is None]}
    return pika.BasicProperties(
        content_type=message.content_type,
        headers=headers,
        delivery_mode=_PERSISTENT,
        message_id=message.id,
        timestamp=message.change.commit_time_us // 1_000_000,
    )


def _failure(error: Exception) -> SinkError:
    """Return what an error of the connection means."""
    cause = error.__cause__ or (error.args[0] if error.args and isinstance(error.args[0], Exception) else error)
    for one in (error, cause):
        if isinstance(one, _WRONG_CREDENTIALS):
            return SinkRefusedError("RabbitMQ does not accept the credentials, or has no such virtual host")
        if isinstance(one, ConnectionClosed | ChannelClosed) and one.reply_code in {403, 404, 405, 406, 530}:
            return SinkRefusedError(f"RabbitMQ refuses: {one.reply_code}; see what the sink's user may do there")
    if isinstance(cause, ssl.SSLCertVerificationError):
        return SinkRefusedError("RabbitMQ's certificate is not trusted: name its authority by the option `ca`")
    return SinkUnavailableError(f"RabbitMQ cannot be reached: {type(cause).__name__}")


def _trusting(authority: str | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=authority)
    except OSError:
        raise SinkRefusedError("the file that the option `ca` of the sink names holds no certificates") from None


def build(url: SinkUrl, name: str) -> RabbitTarget:
    """Return the target of an `amqp` or `amqps` URL.

    Raises:
        ConfigError: Something in it is wrong.
    """
    options = url.only("exchange", "queue", "queue_type", "max_bytes", "ca", "timeout")
    queue, tls = options.get("queue", _TABLE), url.scheme == "amqps"
    spelled(queue, TableName("source", "table"))
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
