"""What a reader of Kafka finds in a topic."""

import time

import msgspec
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

READ_S = 60


class Found(msgspec.Struct):
    """A message as a reader finds it."""

    id: str | None
    key: bytes | None
    value: bytes | None
    headers: dict[str, str] | None = None


def read(port, topic, partition=0):
    """Return all messages of a partition of a topic, in order; none where there is no such topic."""
    consumer = Consumer(
        {
            "bootstrap.servers": f"127.0.0.1:{port}",
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "fetch.message.max.bytes": 10_000_000,
            "fetch.wait.max.ms": 10,
            "log_level": 0,
        }
    )
    try:
        if topic not in consumer.list_topics(timeout=READ_S).topics:
            return []
        consumer.assign([TopicPartition(topic, partition, 0)])
        return list(_until_end(consumer))
    finally:
        consumer.close()


def _until_end(consumer):
    deadline = time.monotonic() + READ_S
    while time.monotonic() < deadline:
        for message in consumer.consume(1000, 0.2):
            if message.error() is None:
                headers = {name: text.decode() for name, text in message.headers() or ()}
                yield Found(headers.get("tailrace-id"), message.key(), message.value(), headers)
            elif message.error().code() == KafkaError._PARTITION_EOF:
                return
            else:
                raise KafkaException(message.error())
    raise TimeoutError("the topic has no end")
