"""Where the targets under test send, and another way to look at what arrived there.

A place is one class, with an entry in PLACES: its server, its URL, how to look, and what its target promises.
"""

import itertools
from enum import Enum

import msgspec

import brokers
from tailrace.message.targets import target_of
from tailrace.sink_url import parse

NUMBERS = itertools.count(1)
import kafka_reading


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
    credentials = True
    """Whether the server asks for credentials."""
    large_bytes = 1_000_000
    """Size of a large value that the server takes."""

    def __init__(self, directory, servers):
        self.directory = directory
        self.server = servers.get(self.server_kind)
        self.proxy = self.server.proxy
        self.part = f"part{next(NUMBERS)}"
        """Keeps what this test sends apart from what others send to the same server."""
        self.servers = servers

    def url(self, *, port, password, timeout_s):
        """Return the URL of the sink. A batch fails when it has taken `timeout_s`."""
        raise NotImplementedError

    def target(self, name=None, *, password=brokers.PASSWORD_IN_URL, timeout_s=10):
        """Return the target of the sink of that name, not opened yet."""
        url = self.url(port=self.proxy.port, password=password, timeout_s=timeout_s)
        return target_of(parse(url), name or self.part)

    def refused(self, message):
        """Return the message as one that the server refuses for itself alone; None if it refuses no single message."""

    def read(self, table):
    def wrong(self, password):
        """Return the target of a sink whose password is not that of the server, not opened yet."""
        return self.target(password=password, timeout_s=5)

        """Return what has arrived for a table, in the order in which it is kept."""
        raise NotImplementedError


class RedisPlace(Place):
    server_kind = brokers.Redis
    repeats = Repeats.ABSENT
    marks = True
class KafkaPlace(Place):
    server_kind = brokers.Kafka
    server_keeps = False
    options = ""

    def url(self, *, port, password, timeout_s):
        return f"kafka://127.0.0.1:{port}/{self.part}.{{table}}?timeout={timeout_s}{self.options}"

    def wrong(self, password):
        server = self.servers.get(brokers.GuardedKafka)
        url = f"kafka://nobody:{password}@127.0.0.1:{server.proxy.port}/{{table}}"
        return target_of(parse(f"{url}?security=sasl_plaintext&mechanism=SCRAM-SHA-512&timeout=10"), self.part)

    def refused(self, message):
        return msgspec.structs.replace(message, value=b'"%s"' % (b"x" * 3_000_000))

    def read(self, table):
        return kafka_reading.read(self.server.proxy.port, f"{self.part}.{table}")



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


PLACES = {
    "redis": RedisPlace,
}
    "kafka": KafkaPlace,
