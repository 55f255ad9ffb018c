"""Where the targets under test send, and another way to look at what arrived there.

A place is one class, with an entry in PLACES: its server, its URL, how to look, and what its target promises.
"""

import asyncio
import contextlib
import itertools
import json
from enum import Enum
from urllib.parse import quote

import httpx
import msgspec

import brokers
import kafka_reading
from tailrace.message.targets import target_of
from tailrace.sink_url import parse

NUMBERS = itertools.count(1)
READ_S = 30


class Repeats(Enum):
    """What a reader sees of a change that was given twice."""

    ABSENT = "it is there once"
    KNOWN = "it is there twice and known by its id"


class Received(msgspec.Struct):
    """A message as a reader finds it. What the place does not keep is None."""

    id: str | None
    key: bytes | None
    value: bytes | None
    headers: dict[str, str] | None = None


class Place:
    """One place for one kind of target, used by one test. Targets connect to the proxy in front of its server."""

    server_kind: type[brokers.Broker]
    repeats = Repeats.KNOWN
    """What the docstring of the target says about changes that are given again."""
    marks = False
    """Whether the target keeps marks, in one step with the messages."""
    documents = False
    """Whether a reader finds the newest state of each row (search) instead of all messages."""
    server_keeps = True
    """Whether what the server has answered for is there after it was killed."""
    server_hides = True
    """Whether a reader does not see what was written in a transaction that was never committed."""
    credentials = True
    """Whether the server asks for credentials, and is asked when a target is opened."""
    connects = True
    """Whether opening a target reaches the server."""
    large_bytes = 1_000_000
    """Size of a large value that the server takes."""

    def __init__(self, directory, servers):
        self.directory = directory
        self.servers = servers
        self.server = servers.get(self.server_kind)
        self.proxy = self.server.proxy
        self.part = f"part{next(NUMBERS)}"
        """Keeps what this test sends apart from what others send to the same server."""

    def url(self, *, port, password, timeout_s):
        """Return the URL of the sink. A batch fails when it has taken `timeout_s`."""
        raise NotImplementedError

    def target(self, name=None, *, password=brokers.PASSWORD_IN_URL, timeout_s=30):
        """Return the target of the sink of that name, not opened yet."""
        url = self.url(port=self.proxy.port, password=password, timeout_s=timeout_s)
        return target_of(parse(url), name or self.part)

    def wrong(self, password):
        """Return the target of a sink whose password is not that of the server, not opened yet."""
        return self.target(password=password)

    def refused(self, message):
        """Return the message as one that the server refuses for itself alone; None if it refuses no single message."""

    def read(self, table):
        """Return what has arrived for a table, in the order in which it is kept."""
        raise NotImplementedError


class KafkaPlace(Place):
    server_kind = brokers.Kafka
    server_keeps = False
    options = ""

    def url(self, *, port, password, timeout_s):
        return f"kafka://127.0.0.1:{port}/{self.part}.{{table}}?timeout={timeout_s}{self.options}"

    def wrong(self, password):
        server = self.servers.get(brokers.GuardedKafka)
        url = f"kafka://nobody:{password}@127.0.0.1:{server.proxy.port}/{{table}}"
        return target_of(parse(f"{url}?security=sasl_plaintext&mechanism=SCRAM-SHA-512&timeout=30"), self.part)

    def refused(self, message):
        return msgspec.structs.replace(message, value=b'"%s"' % (b"x" * 3_000_000))

    def read(self, table):
        return kafka_reading.read(self.server.proxy.port, f"{self.part}.{table}")


class KafkaTransactionsPlace(KafkaPlace):
    options = "&transactions=true"
    marks = True
    server_hides = False


class RedisPlace(Place):
    server_kind = brokers.Redis
    repeats = Repeats.ABSENT
    marks = True

    def url(self, *, port, password, timeout_s):
        return f"redis://:{password}@127.0.0.1:{port}/0?stream={self.part}:{{table}}&timeout={timeout_s}"

    def refused(self, message):
        return msgspec.structs.replace(message, value=b'"%s"' % (b"x" * 3_000_000))

    def read(self, table):
        import redis

        with redis.Redis(port=self.server.port, password=brokers.PASSWORD) as client:
            return [_of_stream(fields) for _, fields in client.xrange(f"{self.part}:{table}")]


def _of_stream(fields):
    headers = {name.decode(): text.decode() for name, text in fields.items() if name not in {b"key", b"value"}}
    return Received(fields[b"tailrace-id"].decode(), fields[b"key"], fields.get(b"value"), headers)


def check(place, given, *, repeats=Repeats.ABSENT, table="orders", kept=()):
    """Compare what arrived with what was given, in the order in which it was given first.

    `repeats` says what may have become of messages that were given again. `kept` is what arrived before the server lost
    everything.
    """
    found = [*kept, *place.read(table)]
    if place.documents:
        newest = {message.key: message.value for message in given}
        wanted = {key: value for key, value in newest.items() if value is not None}
        assert {one.key: one.value for one in found} == wanted
        return
    first = {}
    for one in found:
        first.setdefault(one.id, one)
        assert first[one.id] == one, "a repeat is the same message"
    assert [(one.id, one.key, one.value) for one in first.values()] == [(one.id, one.key, one.value) for one in given]
    if repeats is Repeats.ABSENT:
        assert len(found) == len(first)


class NatsPlace(Place):
    server_kind = brokers.Nats
    large_bytes = 1_000_000

    def url(self, *, port, password, timeout_s):
        return f"nats://sink:{password}@127.0.0.1:{port}/{self.part}.{{table}}?timeout={timeout_s}"

    def refused(self, message):
        return msgspec.structs.replace(message, value=b'"%s"' % (b"x" * 3_000_000))

    def read(self, table):
        return asyncio.run(self._read(f"{self.part}.{table}"))

    async def _read(self, subject):
        import nats
        from nats.js.errors import NotFoundError

        url = f"nats://127.0.0.1:{self.server.port}"
        connection = await nats.connect(url, user="sink", password=brokers.PASSWORD, connect_timeout=READ_S)
        stream, found, number = connection.jetstream(timeout=READ_S), [], 1
        try:
            name = await stream.find_stream_name_by_subject(subject)
            with contextlib.suppress(NotFoundError):
                while True:
                    one = await stream.get_msg(name, number, subject=subject, next=True)
                    headers = dict(one.headers)
                    found.append(_with_headers(headers["Nats-Msg-Id"].partition("@")[0], headers, one.data or b""))
                    number = one.seq + 1
        finally:
            await connection.close()
        return found


class RabbitMqPlace(Place):
    """With classic queues: a quorum queue whose server is killed within seconds of its making does not come back."""

    server_kind = brokers.RabbitMq

    def url(self, *, port, password, timeout_s):
        more = f"queue={self.part}.{{table}}&queue_type=classic&max_bytes=2000000&timeout={timeout_s}"
        return f"amqp://sink:{password}@127.0.0.1:{port}/?{more}"

    def refused(self, message):
        return msgspec.structs.replace(message, value=b'"%s"' % (b"x" * 2_000_000))

    def read(self, table):
        return asyncio.run(self._read(f"{self.part}.{table}"))

    async def _read(self, name):
        import aio_pika

        found = []
        async with await aio_pika.connect(
            host="127.0.0.1", port=self.server.port, login="sink", password=brokers.PASSWORD
        ) as connection:
            queue = await (await connection.channel()).get_queue(name)
            while (one := await queue.get(no_ack=False, fail=False, timeout=30)) is not None:
                found.append(_with_headers(one.message_id, one.headers, one.body))
        return found


def _with_headers(id_, headers, value):
    return Received(id_, headers["tailrace-key"].encode(), None if "tailrace-tombstone" in headers else value, headers)


class WebhookPlace(Place):
    """With one request at a time: otherwise messages of different rows overtake each other."""

    server_kind = brokers.Webhook
    connects = False
    credentials = False

    def url(self, *, port, password, timeout_s):
        more = f"bearer={password}&timeout={timeout_s}&concurrency=1&allow_private=true"
        return f"webhook+http://127.0.0.1:{port}/{self.part}/{{table}}?{more}"

    def refused(self, message):
        return msgspec.structs.replace(message, value=b'"%s"' % (b"x" * 2_000_000))

    def read(self, table):
        return [
            _with_headers(headers["webhook-id"], {n: text for n, text in headers.items() if n[:8] == "tailrace"}, body)
            for path, headers, body, status in self.server.fake.requests
            if path == f"/{self.part}/{quote(table, safe='')}" and status == 204
        ]


class SearchPlace(Place):
    repeats = Repeats.ABSENT
    documents = True

    def of_documents(self, documents):
        """Return documents as the messages that made them."""
        found = []
        for id_, one in documents.items():
            value = {name: one.get(name) for name in ("op", "before", "after")}
            found.append(Received(None, b"[%s]" % id_.encode(), json.dumps(value, ensure_ascii=False).encode()))
        return found


class TypesensePlace(SearchPlace):
    server_kind = brokers.Typesense

    def url(self, *, port, password, timeout_s):
        return f"typesense+http://127.0.0.1:{port}/{self.part}-{{table}}?api_key={password}&timeout={timeout_s}"

    def read(self, table):
        path = f"http://127.0.0.1:{self.server.port}/collections/{self.part}-{table}/documents/export"
        answer = httpx.get(path, headers={"x-typesense-api-key": brokers.PASSWORD}, timeout=READ_S)
        answer.raise_for_status()
        documents = [json.loads(line) for line in answer.content.split(b"\n") if line]
        return self.of_documents({one["id"]: one for one in documents})


class OpenSearchPlace(SearchPlace):
    server_kind = brokers.OpenSearch

    def url(self, *, port, password, timeout_s):
        return f"opensearch+http://sink:{password}@127.0.0.1:{port}/{self.part}-{{table}}?timeout={timeout_s}"

    def read(self, table):
        return self.of_documents(self.server.fake.sources(f"{self.part}-{table}"))


PLACES = {
    "kafka": KafkaPlace,
    "kafka-transactions": KafkaTransactionsPlace,
    "nats": NatsPlace,
    "opensearch": OpenSearchPlace,
    "rabbitmq": RabbitMqPlace,
    "redis": RedisPlace,
    "typesense": TypesensePlace,
    "webhook": WebhookPlace,
}
