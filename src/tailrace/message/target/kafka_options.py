"""What the URL of a Kafka sink says, and what that means to the library. Pure."""

import re

from msgspec import Struct

from tailrace.message.target.option import choice_of, number_of, seconds_of, switch_of
from tailrace.model.errors import ConfigError
from tailrace.model.table import TableName
from tailrace.sink_url import SinkUrl, spelled

__all__ = ["MARKS", "KafkaOptions", "kafka_options", "topic_of"]

MARKS = "_tailrace_marks"
"""Topic of the marks of sinks with transactions: compacted, of one partition, the key is the name of the sink."""

_PORT = 9092
_TIMEOUT_S = 30.0
_TIMEOUT_S_LEAST = 1.0
_LINGER_MS, _LINGER_MS_MAX = 1, 10_000
_QUEUE_MESSAGES_MAX = 100_000
_QUEUE_KBYTES_MAX = 128 << 10
_BATCH_BYTES_MAX = 1 << 20
_LOG_LEVEL = 2
"""The library tells of critical things alone: connections that fail are reported as errors of the sink."""

_STATISTICS_MS = 1_000
"""How often the library tells how it is: only there it says that brokers do not know its producer."""

_RECONNECT_MS, _RECONNECT_MS_MAX = 50, 1_000
_TOPIC_CHARACTERS_MAX = 249
_NOT_IN_TOPICS = re.compile(r"[^a-zA-Z0-9._-]")

_SECURITY = ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl")
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


class KafkaOptions(Struct, frozen=True):
    """Where the brokers are, and how they are talked to. The password is not shown."""

    brokers: str
    topic: str
    user: str
    password: str
    security: str
    mechanism: str
    authority: str | None
    compression: str
    partitions: int
    replication: int
    transactions: bool
    linger_ms: int
    timeout_s: float

    def __repr__(self) -> str:
        return f"Kafka at {self.brokers}"

    def client(self) -> dict[str, str | int | float | bool]:
        """Return the settings of every client of the library."""
        settings: dict[str, str | int | float | bool] = {
            "bootstrap.servers": self.brokers,
            "client.id": "tailrace",
            "security.protocol": self.security,
            "socket.timeout.ms": self.timeout_ms,
            "socket.connection.setup.timeout.ms": max(self.timeout_ms, 1_000),
            "reconnect.backoff.ms": _RECONNECT_MS,
            "reconnect.backoff.max.ms": _RECONNECT_MS_MAX,
            "enable.metrics.push": False,
            "log_level": _LOG_LEVEL,
        }
        if self.security.startswith("sasl"):
            settings |= {
                "sasl.mechanism": self.mechanism,
                "sasl.username": self.user,
                "sasl.password": self.password,
            }
        if self.authority:
            settings["ssl.ca.location"] = self.authority
        return settings

    def producer(self, name: str, message_bytes_max: int, *, alone: bool) -> dict[str, str | int | float | bool]:
        """Return the further settings of a producer. Where messages are sent `alone`, each is a request of its own.

        Numbered messages of a partition arrive without a gap, or nothing after the gap does. A producer that sends each
        alone, and waits, does not number them: it shall go on after one that is refused.
        """
        settings: dict[str, str | int | float | bool] = {
            "acks": "all",
            "delivery.report.only.error": True,
            "message.timeout.ms": self.timeout_ms,
            "message.max.bytes": message_bytes_max,
            "batch.size": min(_BATCH_BYTES_MAX, message_bytes_max),
            "queue.buffering.max.messages": _QUEUE_MESSAGES_MAX,
            "queue.buffering.max.kbytes": _QUEUE_KBYTES_MAX,
            "linger.ms": self.linger_ms,
            "compression.type": self.compression,
            "partitioner": "murmur2_random",
            "statistics.interval.ms": _STATISTICS_MS,
        }
        if alone:
            settings |= {"batch.num.messages": 1, "linger.ms": 0}
        if self.transactions:
            settings |= {"transactional.id": name, "transaction.timeout.ms": self.timeout_ms}
        elif alone:
            settings["max.in.flight"] = 1
        else:
            settings |= {"enable.idempotence": True, "enable.gapless.guarantee": True}
        return settings

    @property
    def timeout_ms(self) -> int:
        """Return how long a message may take."""
        return int(self.timeout_s * 1000)


def kafka_options(url: SinkUrl) -> KafkaOptions:
    """Return what a URL says.

    Raises:
        ConfigError: An option is wrong.
    """
    options = url.only(
        "security", "mechanism", "ca", "compression", "partitions", "replication", "transactions", "linger", "timeout"
    )
    topic = url.path.strip("/")
    if not url.host or not topic:
        raise ConfigError("a kafka sink is written kafka://HOST:PORT/{table}, the path being the topic")
    topic_of(topic, TableName("source", "table"))
    usual = "sasl_ssl" if url.user else "plaintext"
    security = choice_of(options, "security", *dict.fromkeys((usual, *_SECURITY)))
    if security.startswith("sasl") != bool(url.user):
        raise ConfigError("a kafka sink has a user and password exactly if its option security begins with sasl")
    timeout_s = seconds_of(options, "timeout", _TIMEOUT_S)
    linger_ms = number_of(options, "linger", _LINGER_MS)
    if timeout_s < _TIMEOUT_S_LEAST or linger_ms > min(_LINGER_MS_MAX, timeout_s * 1000 / 2):
        raise ConfigError("the sink's option timeout is at least 1 second and twice linger, which is milliseconds")
    return KafkaOptions(
        ",".join(host if ":" in host else f"{host}:{url.port or _PORT}" for host in url.host.split(",")),
        topic,
        url.user,
        url.password,
        security,
        choice_of(options, "mechanism", *_MECHANISMS),
        options.get("ca"),
        choice_of(options, "compression", "none", "lz4", "zstd", "gzip", "snappy"),
        number_of(options, "partitions", 1, least=1),
        number_of(options, "replication", -1, least=1),
        switch_of(options, "transactions"),
        linger_ms,
        timeout_s,
    )


def topic_of(template: str, table: TableName) -> str:
    """Return the topic of a table. Characters that topics cannot have become underscores.

    Raises:
        ConfigError: The template is wrong, or the name too long.
    """
    topic = _NOT_IN_TOPICS.sub("_", spelled(template, table))
    if len(topic) > _TOPIC_CHARACTERS_MAX or topic in {".", ".."}:
        raise ConfigError(
            f"{topic[:60]!r} cannot be the name of a topic: it has up to {_TOPIC_CHARACTERS_MAX} characters"
        )
    return topic
