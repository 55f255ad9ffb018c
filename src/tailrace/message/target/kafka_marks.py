"""Marks of sinks that send in transactions: each the newest message of its key in a compacted topic."""

# ruff: noqa: SLF001 (the codes of errors of the library itself begin with an underscore)

import time

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from tailrace.message.target.kafka_options import MARKS, KafkaOptions

__all__ = ["MARKS_SETTINGS", "read_mark"]

MARKS_SETTINGS = {"cleanup.policy": "compact", "segment.ms": "600000", "min.cleanable.dirty.ratio": "0.1"}

_LOOK_BACK = 1_000
_LOOK_FURTHER = 10
_MESSAGES_AT_ONCE = 10_000
_POLL_S = 0.1
_FETCH_WAIT_MS = 10


def read_mark(options: KafkaOptions, name: str) -> bytes | None:
    """Return the mark of a sink; None if it has none.

    To be called when no transaction of this sink is open. Those of other sinks may be: what they have not committed is
    waited for, since a mark of ours may stand behind it.

    Raises:
        KafkaException: It cannot be read, or not in time.
    """
    settings = options.client() | {
        "group.id": f"tailrace-{name}",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "isolation.level": "read_committed",
        "auto.offset.reset": "earliest",
        "fetch.wait.max.ms": _FETCH_WAIT_MS,
    }
    deadline = time.monotonic() + options.timeout_s
    consumer = Consumer(settings)
    try:
        return _newest(consumer, name.encode(), deadline, options.timeout_s)
    finally:
        consumer.close()


def _newest(consumer: Consumer, key: bytes, deadline: float, timeout_s: float) -> bytes | None:
    """Look for the newest message of a key: among the last ones, then ever further back."""
    first, end = consumer.get_watermark_offsets(TopicPartition(MARKS, 0), timeout=timeout_s)
    look_back = _LOOK_BACK
    while True:
        begin = max(first, end - look_back)
        mark = _last_of(consumer, key, begin, end, deadline)
        if mark is not None or begin == first:
            return mark
        look_back *= _LOOK_FURTHER


def _last_of(consumer: Consumer, key: bytes, begin: int, end: int, deadline: float) -> bytes | None:
    """Return the last message of a key from `begin` until the topic's end, which is at `end` or beyond."""
    mark = None
    consumer.assign([TopicPartition(MARKS, 0, begin)])
    while time.monotonic() < deadline:
        for message in consumer.consume(_MESSAGES_AT_ONCE, _POLL_S):
            error = message.error()
            if error is None:
                if message.key() == key:
                    mark = message.value()
            elif error.code() != KafkaError._PARTITION_EOF:
                raise KafkaException(error)
            elif (message.offset() or 0) >= end:
                return mark
    raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
