"""A batch on its way to Kafka: what of it was refused, and what is behind that in its key. Pure."""

from collections.abc import Mapping, Sequence

from tailrace.message.base import Message, Refusal
from tailrace.message.target.kafka_failure import REFUSED, Failure, failed_places
from tailrace.model.table import TableName

__all__ = ["Batch"]

_BEHIND = "a message of the same key before it was refused"


class Batch:
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

    def failed(self, failures: Sequence[Failure], places: Sequence[int]) -> dict[int, int]:
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
