"""Messages into streams of Redis: `redis://[USER:PASSWORD@]HOST:PORT/DB?stream={table}`, over TLS `rediss://`.

An entry has the message's headers as fields, `tailrace-id` first, then `key`, `content_type` and `value`.
"""

import itertools
import logging
import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import redis
from msgspec import Struct
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, AuthorizationError, InvalidResponse, RedisError
from redis.retry import Retry

from tailrace.message.base import Intake, Message, Refusal, Target, TargetTraits
from tailrace.message.target.header import headers_of
from tailrace.message.target.option import number_of, seconds_of
from tailrace.message.target.redis_script import OTHER, REFUSED, SCRIPT, SENT
from tailrace.message.target.trust import trusting
from tailrace.model.errors import ConfigError, SinkError, SinkRefusedError, SinkUnavailableError
from tailrace.model.table import TableName, TableSchema
from tailrace.sink_url import SinkUrl, Spelling

__all__ = ["MARKS", "RedisOptions", "RedisTarget", "build"]

logger = logging.getLogger(__name__)

MARKS = "tailrace:marks"
"""Hash in which sinks keep their marks, by name."""

_PORT = 6379
_TIMEOUT_S = 30.0
_PART_MESSAGES_MAX = 10_000
"""Most messages of one atomic step. A batch of more is cut, and only its last part carries the mark."""

_PART_BYTES_MAX = 64 << 20
_ARGUMENT_BYTES_MAX = 512 << 20
"""Longest value that Redis takes, unless it is configured otherwise and says so."""

_DOUBTS_MAX = 16
"""How many parts that were given up may still be executed: a server that stalls may do so when it goes on."""

_TRANSIENT = re.compile(
    r"\b(OOM|READONLY|LOADING|MASTERDOWN|CLUSTERDOWN|TRYAGAIN|BUSY|MISCONF|NOREPLICAS)\b"
    r"|used memory > 'maxmemory'|max number of clients|loading the dataset|read only replica"
)
_CERTIFICATE = "CERTIFICATE_VERIFY_FAILED"
_NO_DATABASE = "DB index is out of range"
_CODE = re.compile(r"[A-Z]{2,}\b")


class RedisOptions(Struct, frozen=True):
    """Where the server is, and how streams are named. The password is not shown."""

    host: str
    port: int
    user: str
    password: str
    database: int
    stream: str
    length_max: int | None
    timeout_s: float
    tls: bool
    authority: str | None

    def __repr__(self) -> str:
        return f"Redis at {self.host}:{self.port}/{self.database}"


def build(url: SinkUrl, name: str) -> Target:
    """Return the target at a URL.

    Raises:
        ConfigError: An option is wrong.
    """
    options = url.only("stream", "maxlen", "timeout", "ca")
    stream = options.get("stream", "{table}")
    database = url.path.strip("/") or "0"
    if not stream or not database.isdecimal():
        raise ConfigError("a redis sink is written redis://HOST:PORT/DB?stream={table}, DB being a number")
    length_max = number_of(options, "maxlen", least=1) if "maxlen" in options else None
    return RedisTarget(
        RedisOptions(
            url.host or "localhost",
            url.port or _PORT,
            url.user,
            url.password,
            int(database),
            stream,
            length_max,
            seconds_of(options, "timeout", _TIMEOUT_S),
            url.scheme == "rediss",
            options.get("ca"),
        ),
        name,
    )


class RedisTarget:
    """Streams of one Redis server. For one thread.

    Each batch is written in one atomic step with its mark, so that whoever goes on from the mark sends each message
    once. A change that is given again all the same is recognised by its stream id, which is its offset, and left out;
    rows of a snapshot and messages that come late are recognised after a lost answer, but not by another process that
    does not go on from the mark: then a reader sees them twice, with the same `tailrace-id`.
    """

    traits = TargetTraits(Intake.WHOLE)

    def __init__(self, options: RedisOptions, name: str) -> None:
        self._options = options
        self._name = name
        self._limit = "" if options.length_max is None else str(options.length_max)
        self._client: redis.Redis | None = None
        self._named = Spelling(options.stream)
        self._argument_bytes_max = _ARGUMENT_BYTES_MAX
        self._origin = secrets.token_hex(8).encode()
        """Begins the name of each part that is sent from here."""
        self._numbers = itertools.count()
        self._found = b""
        """Beginning of the record that was there when the target was opened."""
        self._record = b""
        """Beginning of the record that Redis has of this sink, as far as we know: the name of the last part."""
        self._doubts: dict[bytes, Sequence[str]] = {}
        """Ids of the messages of parts whose answer never came, by name: Redis may have one, or get it yet."""
        self._known: set[str] = set()
        """Ids of messages that Redis has although `send` failed: they are given again."""

    def open(self, schemas: Sequence[TableSchema]) -> None:
        """Connect, look whether the streams can be written, and read how far the sink is."""
        self.close()
        client = self._connected()
        with self._errors():
            client.ping()
            self._argument_bytes_max = _longest(client)
            for stream in {self._stream(schema.table) for schema in schemas}:
                kind = client.type(stream)
                if kind not in (b"none", b"stream"):
                    raise SinkRefusedError(
                        f"the key {stream.decode()!r} of Redis is not a stream: rename it, or the stream"
                    )
            record = client.hget(MARKS, self._name)
        self._doubts, self._known = {}, set()
        self._found = self._record = _part_of(_bytes(record))

    def mark(self) -> bytes | None:
        """Return the mark in the sink's record."""
        with self._errors():
            record = _bytes(self._connected().hget(MARKS, self._name))
        return record.partition(b" ")[2] or None

    def send(self, messages: Sequence[Message], mark: bytes) -> Sequence[Refusal]:
        """Write a batch and its mark. Messages that Redis has from a part whose answer was lost are left out."""
        longest = self._argument_bytes_max
        if refusals := [
            Refusal(place, f"longer than the {longest} bytes that Redis takes")
            for place, message in enumerate(messages)
            if message.value is not None and len(message.value) > longest
        ]:
            return refusals
        streams = [self._stream(message.change.schema.table) for message in messages]
        keys = list(dict.fromkeys(streams))
        done: set[str] = set()
        try:
            for begin, end in _parts(messages):
                batch_mark = mark if end == len(messages) else self.mark() or b""
                if refused := self._send_part(messages[begin:end], streams[begin:end], keys, batch_mark):
                    reason = "the key of its stream holds something else"
                    return [Refusal(place, reason) for place, stream in enumerate(streams) if stream in refused]
                done.update(message.id for message in messages[begin:end])
        except SinkError:
            self._known |= done
            raise
        return ()

    def close(self) -> None:
        """Disconnect."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _send_part(
        self, messages: Sequence[Message], streams: Sequence[bytes], keys: Sequence[bytes], mark: bytes
    ) -> set[bytes]:
        """Write a part in one step; or nothing, and return the keys that are no streams."""
        numbers = {key: number for number, key in enumerate(keys, 2)}
        while True:
            part = b"%s-%d " % (self._origin, next(self._numbers))
            ids: list[str] = []
            arguments: list[bytes | str | int] = [self._name, self._record, part + mark, self._limit]
            for message, stream in zip(messages, streams, strict=True):
                if message.id not in self._known:
                    ids.append(message.id)
                    _put(arguments, message, numbers[stream])
            answer = self._run(["EVAL", SCRIPT, len(keys) + 1, MARKS, *keys, *arguments], part, ids)
            if answer[0] == OTHER:
                self._settle(_bytes(answer[1]))
            elif answer[0] == REFUSED:
                return {keys[number - 2] for number in answer[1:]}
            else:
                self._record = part
                self._known.difference_update(message.id for message in messages)
                return set()

    def _run(self, command: list[bytes | str | int], part: bytes, ids: Sequence[str]) -> list[Any]:
        """Run the script once. If the answer does not come it is in doubt what Redis has done."""
        if self._client is None:
            with self._errors():
                self._connected().ping()
        while len(self._doubts) >= _DOUBTS_MAX:
            del self._doubts[next(iter(self._doubts))]
        self._doubts[part] = ids
        try:
            with self._errors():
                answer: list[Any] = self._connected().execute_command(*command)  # type: ignore[no-untyped-call]
        except SinkRefusedError:
            del self._doubts[part]
            raise
        if answer[0] == SENT:
            self._doubts.clear()
        else:
            del self._doubts[part]
        return answer

    def _settle(self, record: bytes) -> None:
        """See whose record Redis has: that of a part which we had given up, an earlier one, or of someone else.

        Raises:
            SinkUnavailableError: Redis is back where it was before: it has lost what was written since.
            SinkRefusedError: Another process has written for this sink since this one looked.
        """
        part = _part_of(record)
        if part not in self._doubts and (part in {b"", self._found} or part.startswith(self._origin)):
            logger.warning("Redis has lost messages that it had", extra={"sink": self._name})
            self._record, self._doubts, self._known = part, {}, set()
            raise SinkUnavailableError(f"{self._options!r} has lost the last writes; the sink continues")
        if part not in self._doubts:
            raise SinkRefusedError(f"another process runs the sink {self._name!r}: stop one of them")
        self._known.update(self._doubts[part])
        self._record = part
        self._doubts.clear()

    def _stream(self, table: TableName) -> bytes:
        return self._named(table).encode()

    def _connected(self) -> redis.Redis:
        if self._client is None:
            options = self._options
            if options.tls and options.authority:
                trusting(options.authority)
            self._client = redis.Redis(
                options.host,
                options.port,
                options.database,
                username=options.user or None,
                password=options.password or None,
                ssl=options.tls,
                ssl_ca_certs=options.authority,
                socket_timeout=options.timeout_s,
                socket_connect_timeout=options.timeout_s,
                retry=Retry(NoBackoff(), 0),
                protocol=2,
            )
        return self._client

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn errors of Redis into ours, which show no more of them than their code; disconnect after each."""
        try:
            yield
        except (AuthenticationError, AuthorizationError):
            self.close()
            raise SinkRefusedError("Redis does not accept the user and password of the sink") from None
        except (redis.ConnectionError, redis.TimeoutError, OSError) as error:
            self.close()
            if _CERTIFICATE in str(error):
                raise SinkRefusedError("the certificate of Redis is not trusted: see the option ca") from None
            raise SinkUnavailableError(f"{self._options!r} cannot be reached: {type(error).__name__}") from None
        except InvalidResponse:
            self.close()
            raise SinkRefusedError(f"{self._options!r} is not a Redis server: its answer is not valid") from None
        except RedisError as error:
            self.close()
            text = str(error)
            code = _CODE.match(text)
            shown = code[0] if code else type(error).__name__
            if _NO_DATABASE in text:
                raise SinkRefusedError(f"Redis has no database {self._options.database}: {_NO_DATABASE}") from None
            if _TRANSIENT.search(text):
                raise SinkUnavailableError(f"Redis cannot write now: {shown}") from None
            raise SinkRefusedError(
                f"Redis rejected the write: {shown}; check the permissions of the sink's user"
            ) from None


def _put(arguments: list[bytes | str | int], message: Message, number: int) -> None:
    """Append what the script wants to know of a message: stream, offset, order, number of fields, and those."""
    value, headers = message.value, headers_of(message)
    order = 2 if message.snapshot else 0 if value is not None else 1
    arguments += (number, message.change.offset, order, 2 * len(headers) + (6 if value is not None else 4))
    for header in headers:
        arguments += header
    arguments += ("key", message.key, "content_type", message.content_type)
    if value is not None:
        arguments += ("value", value)


def _parts(messages: Sequence[Message]) -> Iterator[tuple[int, int]]:
    """Cut a batch so that no part is too much for one step; yield where each begins and ends."""
    begin = size_bytes = 0
    for place, message in enumerate(messages):
        more = len(message.value or b"")
        if place > begin and (place - begin == _PART_MESSAGES_MAX or size_bytes + more > _PART_BYTES_MAX):
            yield begin, place
            begin, size_bytes = place, 0
        size_bytes += more
    yield begin, len(messages)


def _longest(client: redis.Redis) -> int:
    """Return how long a value may be, if the sink's user may know it."""
    try:
        return int(client.config_get("proto-max-bulk-len")["proto-max-bulk-len"] or "")
    except (redis.ResponseError, KeyError, ValueError):
        return _ARGUMENT_BYTES_MAX


def _part_of(record: bytes) -> bytes:
    """Return the name of the part that left a record, with the space behind it."""
    name, space, _ = record.partition(b" ")
    return name + space


def _bytes(found: object) -> bytes:
    """Return what Redis has there; nothing if it is not there."""
    return found if isinstance(found, bytes) else b""
