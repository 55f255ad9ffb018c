"""A cluster of Kafka as its administrator sees it: whether it is there, which topics it has, what it takes."""

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType  # type: ignore[attr-defined]

from tailrace.message.target.kafka_options import KafkaOptions

__all__ = ["MESSAGE_BYTES_MAX", "Cluster"]

logger = logging.getLogger(__name__)

MESSAGE_BYTES_MAX = 1_048_588
"""Largest message that brokers take, unless they are configured otherwise and say so."""

_SIZE = "max.message.bytes"
_METADATA_S = 0.5
_SIZE_S = 2.0
"""How long to wait for an answer that not all brokers have."""

_RESULT_MORE_S = 5.0
"""How much longer to wait for an answer than it may take: the library reports those that took too long."""


class Cluster:
    """Asks and changes what concerns all topics. For one thread; its own connections."""

    def __init__(self, options: KafkaOptions, notice: Callable[[KafkaError], None]) -> None:
        self._options = options
        settings: dict[str, Any] = {**options.client(), "error_cb": notice}
        self._admin = AdminClient(settings, logger=logger)

    def topics(self, given_up: Callable[[], bool]) -> set[str]:
        """Return the topics that there are.

        Raises:
            KafkaException: The cluster cannot be reached in time, or `given_up` says that it makes no sense.
        """
        deadline = time.monotonic() + self._options.timeout_s
        while True:
            try:
                return set(self._admin.list_topics(timeout=_METADATA_S).topics)
            except KafkaException:
                self._admin.poll(0)
                if given_up() or time.monotonic() > deadline:
                    raise

    def make(self, topics: Iterable[str], settings: Mapping[str, str] | None = None, partitions: int = 0) -> None:
        """Make topics; one that is there by now stays as it is."""
        options = self._options
        wanted = [
            NewTopic(topic, partitions or options.partitions, options.replication, config=dict(settings or {}))
            for topic in topics
        ]
        if not wanted:
            return
        for future in self._admin.create_topics(wanted, request_timeout=options.timeout_s).values():
            try:
                future.result(options.timeout_s + _RESULT_MORE_S)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise

    def message_bytes_max(self, topics: Iterable[str]) -> int:
        """Return how large a message may be in each of these topics, if the sink's user may know it."""
        resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
        found = self._admin.describe_configs(resources, request_timeout=_SIZE_S) if resources else {}
        sizes = []
        for future in found.values():
            try:
                entry = future.result(_SIZE_S + _RESULT_MORE_S).get(_SIZE)
            except KafkaException:
                continue
            if entry is not None and entry.value is not None:
                sizes.append(int(entry.value))
        return min(sizes, default=MESSAGE_BYTES_MAX)
