"""What errors of Kafka mean: a rejected message, a misconfigured sink, or unreachable brokers. Pure."""

# ruff: noqa: SLF001 (the codes of errors of the library itself begin with an underscore)

from collections import Counter
from collections.abc import Mapping, Sequence

from confluent_kafka import KafkaError
from msgspec import Struct

from tailrace.message.base import Message, Refusal
from tailrace.model.errors import SinkError, SinkRefusedError, SinkUnavailableError
from tailrace.model.table import TableName

__all__ = ["CREDENTIALS", "REFUSED", "KafkaBatch", "KafkaFailure", "error_of", "failed_places"]

REFUSED = {
    KafkaError.MSG_SIZE_TOO_LARGE: "larger than the broker takes",
    KafkaError.RECORD_LIST_TOO_LARGE: "larger than the broker takes",
    KafkaError.INVALID_MSG_SIZE: "the broker refuses its size",
    KafkaError.INVALID_RECORD: "the broker has looked at it and refuses it",
    KafkaError._INVALID_DIFFERENT_RECORD: "the broker has looked at it and refuses it",
    KafkaError.INVALID_TIMESTAMP: "the broker refuses its time",
}
"""What a broker can have against one message, or against what was sent in one request with it."""

CREDENTIALS = {
    KafkaError._AUTHENTICATION,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.UNSUPPORTED_SASL_MECHANISM,
    KafkaError._SSL,
}
_FORBIDDEN = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
_FENCED = {KafkaError._FENCED, KafkaError.PRODUCER_FENCED}
_UNFIT = {
    KafkaError.TOPIC_EXCEPTION,
    KafkaError.INVALID_REPLICATION_FACTOR,
    KafkaError.INVALID_PARTITIONS,
    KafkaError.POLICY_VIOLATION,
    KafkaError._UNSUPPORTED_FEATURE,
    KafkaError.UNSUPPORTED_VERSION,
    KafkaError._INVALID_ARG,
}


class KafkaFailure(Struct, frozen=True):
    """A message that did not arrive, as the library reports it."""

    topic: str
    key: bytes
    code: int


def error_of(codes: Sequence[int], name: str, brokers: str, *, transactions: bool) -> SinkError:
    """Return the error of a sink which failed with these codes, of which the most telling counts."""
    if CREDENTIALS.intersection(codes):
        return SinkRefusedError(
            "the brokers do not accept the user and password of the sink, or we not their certificate"
        )
    if _FORBIDDEN.intersection(codes):
        return SinkRefusedError(
            "the user of the sink may not write to its topics, or not make them, or not in transactions"
        )
    if transactions and _FENCED.intersection(codes):
        return SinkRefusedError(f"another process runs the sink {name!r}: stop one of them")
    if unfit := _UNFIT.intersection(codes):
        return SinkRefusedError(f"the brokers cannot do what the sink's options ask for: {_shown(min(unfit))}")
    if codes[0] == KafkaError.UNKNOWN_PRODUCER_ID:
        return SinkUnavailableError(f"the brokers at {brokers} have lost the state of the sink: it starts over")
    return SinkUnavailableError(f"the brokers at {brokers} cannot be reached: {_shown(codes[0])}")


def failed_places(
    failures: Sequence[KafkaFailure], places: Sequence[int], names: Mapping[int, tuple[str, bytes]]
) -> dict[int, int]:
    """Return which of the messages at some places did not arrive, in order, with their errors.

    `names` has the topic and key of each. Of those of one key the last ones failed, since the
    library sends nothing to a partition after something that failed.
    """
    codes: dict[tuple[str, bytes], list[int]] = {}
    for failure in failures:
        codes.setdefault((failure.topic, failure.key), []).append(failure.code)
    left = Counter(names[place] for place in places)
    failed = {}
    for place in places:
        mine = codes.get(names[place], ())
        if left[names[place]] <= len(mine):
            failed[place] = mine[-left[names[place]]]
        left[names[place]] -= 1
    return failed


def _shown(code: int) -> str:
    return KafkaError(code).name()


_BEHIND = "a message of the same key before it was refused"


class KafkaBatch:
    """Messages that are sent together, each known by its place."""

    def __init__(self, messages: Sequence[Message], topics: Mapping[TableName, str]) -> None:
        self.messages = messages
        self.topics = topics
        self.refused: dict[int, int] = {}
        """Errors of messages that are refused for themselves."""

        self.keys: set[tuple[str, bytes]] = set()
        """Topics and keys of those."""

    def refuse(self, place: int, code: int) -> None:
        """Note that a message is refused."""
        self.refused[place] = code
        self.keys.add(self._name(place))

    def failed(self, failures: Sequence[KafkaFailure], places: Sequence[int]) -> dict[int, int]:
        """Return which of the messages at some places did not arrive, and why."""
        return failed_places(failures, places, {place: self._name(place) for place in places})

    def refusals(self) -> list[Refusal]:
        """Return the refusals of those that are refused for themselves."""
        return [Refusal(place, REFUSED[code]) for place, code in sorted(self.refused.items())]

    def keyed_refusals(self) -> list[Refusal]:
        """Return the refusals of those that are refused for themselves, and of what is behind them in their key."""
        if not self.refused:
            return []
        keys: set[tuple[str, bytes]] = set()
        refusals = []
        for place in range(len(self.messages)):
            if self._name(place) in keys:
                refusals.append(Refusal(place, _BEHIND))
            elif place in self.refused:
                refusals.append(Refusal(place, REFUSED[self.refused[place]]))
                keys.add(self._name(place))
        return refusals

    def _name(self, place: int) -> tuple[str, bytes]:
        message = self.messages[place]
        return self.topics[message.change.schema.table], message.key
