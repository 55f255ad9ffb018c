"""The seam to targets: where messages go, one batch after the other."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol

from msgspec import Struct

from tailrace.model.chunk import Change
from tailrace.model.errors import ConfigError, SinkUnavailableError
from tailrace.model.table import TableSchema

__all__ = [
    "BusyError",
    "Intake",
    "Message",
    "Refusal",
    "Target",
    "TargetTraits",
    "answer_text",
    "envelope_for",
]

_ANSWER_CHARACTERS_MAX = 500


class Message(Struct, frozen=True):
    """One change on its way to a target."""

    change: Change
    """What happened, after the sink's projection. Never a schema change. Images and key are natural JSON."""

    id: str
    """Names this message among all that the sink ever sends; the same change has the same id when it is sent again."""

    value: bytes | None
    """The change in the sink's envelope; None for a tombstone, which follows a delete where the target has those."""

    key: bytes
    """Key for targets that order or compact by it: JSON, equal for all changes of a row."""

    headers: tuple[tuple[str, str], ...] = ()
    """What goes beside the value: offset, index, schema version and whatever the envelope puts there."""

    content_type: str = "application/json"
    snapshot: bool = False
    """Whether it is a row of a snapshot and no change: its change is an INSERT with the snapshot's offset."""

    parked: bool = False
    """Whether it comes out of the dead letters. Then its offset lies behind those of other keys that were sent before
    it; no later change of its own key was. A target that tells repeats by their offset alone must take it all the same.
    """


class Intake(StrEnum):
    """What has arrived of a batch in which a target refuses a message."""

    EACH = "each"
    """All others, those of the same key behind it among them. Such a target is given each key once at a time."""

    KEYED = "keyed"
    """All but those of the same key behind it, which are refused as well; or their order does no harm."""

    WHOLE = "whole"
    """Nothing, and the mark is not kept either: it is given again without what was refused. Targets that keep marks."""


class Refusal(Struct, frozen=True):
    """A message that a target will not take, however often it is given."""

    place: int
    """Place of the message in the batch, from 0."""

    reason: str
    """Why, for people; holds no value of a row and no secret."""

    answer: str = ""
    """What the target itself says, in short; it may quote the row, so it goes into the dead letter and into no log."""


class BusyError(SinkUnavailableError):
    """A target that takes messages one by one takes no more for now.

    `retry_after_s` is how long it asks to be left alone; `arrived` is how many messages it has taken before.
    """

    def __init__(self, reason: str, retry_after_s: float = 0.0) -> None:
        super().__init__(reason)
        self.retry_after_s = retry_after_s
        self.arrived = 0


class TargetTraits(Struct, frozen=True):
    """What a target declares of itself. A target that says nothing else has the defaults."""

    intake: Intake = Intake.EACH
    tombstones: bool = False
    """Whether it compacts by key: then a deletion is followed by a message without a value."""

    envelope: str = ""
    """Name of the only envelope that it takes; empty where it takes all."""

    changes_max: int | None = None
    """Of how many changes a live sink gives it the messages at once; None for any number. For targets that are so slow
    that much would be sent again after a crash.
    """


class Target(Protocol):
    """One target of one sink. For one thread.

    Order: messages of one key arrive in the order in which they were given. Duplicates: after `SinkUnavailableError`,
    or after a crash, the same messages are given again, perhaps cut into other batches and with later ones behind them;
    a target that can tell them by their id, or by their offset, leaves out those that it has. Its docstring says
    whether a reader can see a message twice, and how it is recognised. Durability: when `send` returns, each message is
    with the target, as safe as the target keeps anything, or among the refusals.
    """

    @property
    def traits(self) -> TargetTraits:
        """Return what it declares of itself; the same for as long as it lives."""

    def open(self, schemas: Sequence[TableSchema]) -> None:
        """Connect, and make what is missing of the places of these tables. Safe to repeat after an error.

        Raises:
            SinkUnavailableError: The target cannot be reached now: worth another try.
            SinkRefusedError: The target will not take this, e.g. for its credentials: nothing changes by itself.
        """

    def mark(self) -> bytes | None:
        """Return the mark of the last batch that was sent; None where there is none, or the target keeps none."""

    def send(self, messages: Sequence[Message], mark: bytes) -> Sequence[Refusal]:
        """Send messages in order, and return those that were refused, all others having arrived but as `Intake` says.

        A target that can keeps `mark`, in the same atomic step as the messages: then each message arrives once. Others
        leave it. There may be no message at all, only a mark. After an error the target may be used again: it connects
        again by itself.

        Raises:
            SinkUnavailableError: The target cannot be reached now, or is busy. It may have taken some of the messages.
            SinkRefusedError: It takes nothing at all any more, e.g. for its credentials.
        """

    def close(self) -> None:
        """Disconnect. Safe to repeat."""


def answer_text(answer: bytes | str) -> str:
    """Return what a target answers as one short line of printable text."""
    text = answer.decode(errors="replace") if isinstance(answer, bytes) else answer
    line = "".join(one if one.isprintable() else " " for one in text[: 4 * _ANSWER_CHARACTERS_MAX])
    line = " ".join(line.split())
    return line if len(line) <= _ANSWER_CHARACTERS_MAX else f"{line[:_ANSWER_CHARACTERS_MAX]}…"


def envelope_for(target: Target, wanted: str) -> str:
    """Return the name of the envelope that a target is given: the wanted one, or the one that it takes.

    Raises:
        ConfigError: It takes another one only.
    """
    only = target.traits.envelope
    if only and wanted not in {"", only}:
        raise ConfigError(f"this sink supports only the envelope {only}")
    return only or wanted
