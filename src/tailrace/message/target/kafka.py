"""Messages into topics of Kafka: `kafka://[USER:PASSWORD@]HOST:PORT[,HOST:PORT…]/{table}`."""

# ruff: noqa: SLF001 (the codes of errors of the library itself begin with an underscore)

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import confluent_kafka
import msgspec
from confluent_kafka import KafkaError, KafkaException, Producer
from msgspec import Struct

from tailrace.message.base import Intake, Message, Refusal, Target, TargetTraits
from tailrace.message.target.header import headers_of
from tailrace.message.target.kafka_cluster import MESSAGE_BYTES_MAX, Cluster
from tailrace.message.target.kafka_failure import CREDENTIALS, REFUSED, KafkaBatch, KafkaFailure, error_of
from tailrace.message.target.kafka_marks import MARKS_SETTINGS, read_mark
from tailrace.message.target.kafka_options import MARKS, KafkaOptions, kafka_options, topic_of
from tailrace.model.table import TableName, TableSchema
from tailrace.sink_url import SinkUrl

__all__ = ["KafkaTarget", "TransactionalKafkaTarget", "build"]

logger = logging.getLogger(__name__)

_CONTENT_TYPE = "content-type"
_POLL_S = 0.05
_REPORTS_TRIES = 2
"""The first may end with the error for which the producer is given up."""

_HEADER_BYTES = 1_000
"""More than headers have as a rule: only a message that would not fit with as many has its own counted."""

_STILL_S = 2.0
"""So long nothing arrives before it is looked at whether the brokers know the producer. Longer than it tells that."""

_EPOCHS_MAX = 3
"""The library may begin a new epoch as often without anything having arrived: it then says that it is unknown."""

_WAIT_MORE_S = 2.0
"""How much longer to wait for messages than they may take: the library reports those that took too long."""


class _Eos(Struct, frozen=True):
    producer_epoch: int = 0


class _Statistics(Struct, frozen=True):
    """What counts of what the library tells."""

    eos: _Eos = _Eos()


def build(url: SinkUrl, name: str) -> Target:
    """Return the target at a URL.

    Raises:
        ConfigError: An option is wrong.
    """
    options = kafka_options(url)
    return TransactionalKafkaTarget(options, name) if options.transactions else KafkaTarget(options, name)


class KafkaTarget:
    """Topics of one cluster, at least once. For one thread.

    The library numbers what it sends, so that its own repeats are not kept twice, and all replicas in sync have a
    message before it counts as sent. What is given again after an error or a crash a reader may see twice, with the
    same `tailrace-id`. A table's topic is made when it is missing.
    """

    traits = TargetTraits(Intake.KEYED, tombstones=True)

    def __init__(self, options: KafkaOptions, name: str) -> None:
        self._options = options
        self._name = name
        self._cluster: Cluster | None = None
        self._producer: Producer | None = None
        self._topics: dict[TableName, str] = {}
        """Topics that are there, by table."""
        self._message_bytes_max = MESSAGE_BYTES_MAX
        self._failures: list[KafkaFailure] = []
        """Messages of this batch that did not arrive, in order."""
        self._codes: list[int] = []
        """Errors that are about no message: connections, credentials, the producer itself."""
        self._statistics = ""
        """The newest statistics of the library's producer, as JSON."""

    def open(self, schemas: Sequence[TableSchema]) -> None:
        """Connect and make the topics of these tables."""
        self.close()
        with self._errors():
            self._prepare({schema.table for schema in schemas})
            self._connected()

    def mark(self) -> bytes | None:
        """Return None: messages alone are kept."""
        return None

    def send(self, messages: Sequence[Message], mark: bytes) -> Sequence[Refusal]:
        """Send messages and wait until all replicas in sync have them."""
        del mark
        with self._errors():
            batch = self._batch(messages)
            failed = self._attempt(self._connected(), batch, range(len(messages)))
            while failed:
                self._send_alone(batch, [place for place, code in failed.items() if code in REFUSED])
                rest = [place for place, code in failed.items() if code not in REFUSED]
                failed = self._attempt(self._connected(), batch, rest)
        return batch.keyed_refusals()

    def close(self) -> None:
        """Disconnect. Nothing is on its way but what has been given up."""
        self._disconnect()
        self._cluster = None
        self._topics.clear()

    def _batch(self, messages: Sequence[Message]) -> KafkaBatch:
        """Return messages as a batch, for whose tables there are topics."""
        self._prepare({message.change.schema.table for message in messages} - self._topics.keys())
        return KafkaBatch(messages, self._topics)

    def _prepare(self, tables: set[TableName]) -> None:
        """Make the topics of tables that have none, and see how large their messages may be."""
        if self._cluster is not None and not tables:
            return
        if self._cluster is None:
            self._cluster = Cluster(self._options, self._notice)
        topics = {table: topic_of(self._options.topic, table) for table in tables}
        there = self._cluster.topics(lambda: not CREDENTIALS.isdisjoint(self._codes))
        self._cluster.make(sorted(set(topics.values()) - there))
        if self._options.transactions and MARKS not in there:
            self._cluster.make([MARKS], MARKS_SETTINGS, partitions=1)
        self._topics |= topics
        message_bytes_max = self._cluster.message_bytes_max(sorted(set(self._topics.values())))
        if message_bytes_max != self._message_bytes_max:
            self._message_bytes_max = message_bytes_max
            self._disconnect()

    def _connected(self, *, alone: bool = False) -> Producer:
        """Return the producer; a new one if messages are to be sent alone."""
        if alone:
            self._disconnect()
        if self._producer is None:
            settings = self._options.client() | self._options.producer(self._name, self._message_bytes_max, alone=alone)
            callbacks = {"error_cb": self._notice, "on_delivery": self._on_delivery, "logger": logger}
            callbacks["stats_cb"] = self._on_statistics
            self._producer = Producer(settings | callbacks)
        return self._producer

    def _disconnect(self) -> None:
        """Give up what is on its way, and take the reports of it, which the library keeps until then."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.purge()
            for _ in range(_REPORTS_TRIES):
                self._poll(producer, timeout_s=0)

    def _send_alone(self, batch: KafkaBatch, places: Sequence[int]) -> None:
        """Send messages that were refused together one by one, to see which of them was meant."""
        producer = self._connected(alone=True)
        for place in places:
            for refused, code in self._attempt(producer, batch, [place]).items():
                batch.refuse(refused, code)
        self._disconnect()

    def _attempt(self, producer: Producer, batch: KafkaBatch, places: Sequence[int]) -> dict[int, int]:
        """Send messages; return those that did not arrive, with their errors, if the broker refuses one of them.

        Those that are too large are not sent but refused. Nothing is sent that is behind a refused message in its key.

        Raises:
            KafkaException: They did not arrive for another reason.
        """
        self._failures.clear()
        sent, unsent = self._produce(producer, batch, places)
        self._wait(producer)
        codes = [failure.code for failure in self._failures]
        if not REFUSED.keys().isdisjoint(codes):
            return batch.failed(self._failures, sent) | dict.fromkeys(unsent, KafkaError._FATAL)
        if codes or unsent:
            self._codes += codes
            raise KafkaException(KafkaError(codes[0] if codes else KafkaError._FATAL))
        return {}

    def _produce(
        self, producer: Producer, batch: KafkaBatch, places: Sequence[int]
    ) -> tuple[Sequence[int], Sequence[int]]:
        """Give messages to the library until it has all, or has failed; return the places of those it has, and not."""
        produce, messages, topics, keys = producer.produce, batch.messages, batch.topics, batch.keys
        behind: set[int] = set()
        sent, unsent = places, places[:0]
        for number, place in enumerate(places):
            message = messages[place]
            topic, key = topics[message.change.schema.table], message.key
            if keys and (topic, key) in keys:
                behind.add(place)
                continue
            headers: list[tuple[str, str | bytes | None]] = [*headers_of(message)]
            headers.append((_CONTENT_TYPE, message.content_type))
            try:
                while True:
                    try:
                        produce(topic, message.value, key, headers=headers)
                        break
                    except BufferError:
                        self._wait(producer, some=True)
            except KafkaException as error:
                code = error.args[0].code()
                if code not in (KafkaError._FATAL, KafkaError.MSG_SIZE_TOO_LARGE):
                    raise
                if code == KafkaError.MSG_SIZE_TOO_LARGE:
                    batch.refuse(place, code)
                    continue
                sent, unsent = places[:number], places[number:]
                break
        if keys:
            sent = [place for place in sent if place not in batch.refused and place not in behind]
        return sent, unsent

    def _wait(self, producer: Producer, *, some: bool = False) -> None:
        """Wait until it is known of each message whether it has arrived, or of `some`, where the queue is full.

        Raises:
            KafkaException: They are still on their way, although their time is over; or some have failed, and it makes
                no sense to send more; or the brokers do not know the producer.
        """
        deadline = time.monotonic() + self._options.timeout_s + _WAIT_MORE_S
        left, look_s, epochs = len(producer), time.monotonic() + _STILL_S, 0
        enough = len(producer) * 3 // 4 if some else 0
        if some and not len(producer):
            raise KafkaException(KafkaError(KafkaError._QUEUE_FULL))
        while len(producer) > enough:
            if time.monotonic() > deadline:
                raise KafkaException(KafkaError(KafkaError._MSG_TIMED_OUT))
            self._poll(producer)
            if some and self._failures:
                raise KafkaException(KafkaError(KafkaError._FATAL))
            if len(producer) < left:
                left, look_s, epochs = len(producer), time.monotonic() + _STILL_S, 0
            elif time.monotonic() > look_s:
                before, epochs = epochs, self._epochs()
                if before and epochs - before > _EPOCHS_MAX:
                    raise KafkaException(KafkaError(KafkaError.UNKNOWN_PRODUCER_ID))
                look_s = time.monotonic() + _STILL_S

    def _epochs(self) -> int:
        """Return how often the producer has begun again, from 1.

        Brokers that have lost everything, as one without a disk does when it is started again, do not know a producer
        that had sent to them. The library starts over each time it is said so, under a number that they do not know
        either, until the time of its messages is over; it reports nothing. A new producer gets a number that is known.
        """
        decoded = msgspec.json.decode(self._statistics, type=_Statistics) if self._statistics else _Statistics()
        return 1 + max(0, decoded.eos.producer_epoch)

    def _on_statistics(self, statistics: str) -> None:
        self._statistics = statistics

    def _poll(self, producer: Producer, timeout_s: float = _POLL_S) -> None:
        """Take reports. A producer that has failed for good sends nothing more: what waits in it is given back."""
        try:
            producer.poll(timeout_s)
        except KafkaException as error:
            if not error.args[0].fatal():
                raise
            self._notice(error.args[0])
            producer.purge(in_flight=False)

    def _on_delivery(self, error: KafkaError | None, message: confluent_kafka.Message) -> None:
        """Note a message that did not arrive; the library does not tell of others."""
        if error is not None:
            self._failures.append(KafkaFailure(message.topic() or "", message.key() or b"", error.code()))

    def _notice(self, error: KafkaError) -> None:
        if error.code() not in self._codes:
            self._codes.append(error.code())

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn errors of the library into ours, which show no more of them than their code; disconnect after each."""
        self._codes.clear()
        try:
            yield
        except KafkaException as error:
            codes = [error.args[0].code(), *self._codes]
            self.close()
            raise error_of(codes, self._name, self._options.brokers, transactions=self._options.transactions) from None


class TransactionalKafkaTarget(KafkaTarget):
    """Topics of one cluster, exactly once for readers of committed messages. For one thread.

    Each batch is a transaction, in which the mark goes into a topic of its own: whoever goes on from the mark sends
    each message once. What was in doubt after an error is known when the next producer has the name of the sink, and
    messages that turn out to be there are left out when they are given again. Of two processes that send for one sink
    the older is refused.
    """

    traits = TargetTraits(Intake.WHOLE, tombstones=True)

    def __init__(self, options: KafkaOptions, name: str) -> None:
        super().__init__(options, name)
        self._mark: bytes | None = None
        self._doubt: tuple[bytes, Sequence[Message]] | None = None
        """Mark and messages of a batch that was perhaps committed."""
        self._known: set[str] = set()
        """Ids of messages that were committed although `send` failed: they are given again."""

    def mark(self) -> bytes | None:
        """Return the mark of the last transaction that was committed."""
        with self._errors():
            self._prepare(set())
            self._connected()
        return self._mark

    def send(self, messages: Sequence[Message], mark: bytes) -> Sequence[Refusal]:
        """Send messages and their mark in one transaction; none of them if one is refused."""
        with self._errors():
            batch = self._batch(messages)
            producer = self._connected()
            self._refuse_large(batch)
            places = self._unknown(messages)
            if not batch.refused and self._send_within(producer, batch, places, mark):
                failed = self._send_within(self._connected(alone=True), batch, places, mark)
                for place, code in failed.items():
                    if code in REFUSED:
                        batch.refuse(place, code)
                self._disconnect()
        if self._known and not batch.refused:
            self._known.difference_update(message.id for message in messages)
        return batch.refusals()

    def _unknown(self, messages: Sequence[Message]) -> Sequence[int]:
        """Return the places of messages of which it is not known that they are there."""
        if not self._known:
            return range(len(messages))
        return [place for place, message in enumerate(messages) if message.id not in self._known]

    def _refuse_large(self, batch: KafkaBatch) -> None:
        """Refuse what is too large, so that no transaction has to be aborted for it."""
        most = self._message_bytes_max
        for place, message in enumerate(batch.messages):
            size = len(message.key) + len(message.value or b"")
            if size + _HEADER_BYTES > most and size + sum(len(a) + len(b) for a, b in message.headers) > most:
                batch.refuse(place, KafkaError.MSG_SIZE_TOO_LARGE)

    def _send_within(self, producer: Producer, batch: KafkaBatch, places: Sequence[int], mark: bytes) -> dict[int, int]:
        """Send messages in a transaction and commit it; or abort it, and return those that failed and why.

        The mark goes last, when all else has arrived: not every broker hides from readers what was aborted.
        """
        producer.begin_transaction()
        failed = self._attempt(producer, batch, places)
        if failed or batch.refused:
            producer.abort_transaction(self._options.timeout_s)
            return failed
        producer.produce(MARKS, mark, self._name, partition=0)
        self._doubt = mark, [batch.messages[place] for place in places]
        producer.commit_transaction(self._options.timeout_s)
        self._mark, self._doubt = mark, None
        return {}

    def _connected(self, *, alone: bool = False) -> Producer:
        """Return the producer. A new one ends what an older one of this sink has begun; then the mark is certain."""
        fresh = alone or self._producer is None
        producer = super()._connected(alone=alone)
        if fresh:
            producer.init_transactions(self._options.timeout_s)
            self._mark = read_mark(self._options, self._name)
            if self._doubt is not None and self._doubt[0] == self._mark:
                self._known.update(message.id for message in self._doubt[1])
            self._doubt = None
        return producer
