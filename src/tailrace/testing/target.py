"""A target in memory that refuses, fails and answers late on demand."""

from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum

from tailrace.message.base import Intake, Message, Refusal, TargetTraits
from tailrace.model.errors import SinkUnavailableError
from tailrace.model.table import TableSchema

__all__ = ["Fault", "ScriptedTarget"]


class Fault(StrEnum):
    """What goes wrong with one `send`."""

    BEFORE = "before"
    """It cannot be reached: nothing arrives."""

    HALFWAY = "halfway"
    """It breaks off when the first half has arrived. A target that keeps marks takes nothing."""

    AFTER = "after"
    """All has arrived, but the answer is lost."""


class ScriptedTarget:
    """Takes messages as its `intake` says; one that is `Intake.WHOLE` keeps marks. What it has outlives `open`."""

    def __init__(
        self,
        intake: Intake = Intake.EACH,
        refuses: Callable[[Message], str | None] = lambda _: None,
        faults: Iterable[Fault | None] = (),
        *,
        tombstones: bool = False,
        changes_max: int | None = None,
    ) -> None:
        self.traits = TargetTraits(intake, tombstones=tombstones, changes_max=changes_max)
        self.refuses = refuses
        self.answer = ""
        """What it says itself to what it refuses."""

        self.faults = list(faults)
        """What goes wrong with the next calls of `send`; None for nothing."""

        self.arrived: list[Message] = []
        self.batches: list[int] = []
        """How many messages each call of `send` had."""

        self.opened: list[TableSchema] = []
        self.closed = False
        self._mark: bytes | None = None

    def open(self, schemas: Sequence[TableSchema]) -> None:
        """Note the tables."""
        self.opened = list(schemas)
        self.closed = False

    def mark(self) -> bytes | None:
        """Return the mark, where marks are kept."""
        return self._mark

    def send(self, messages: Sequence[Message], mark: bytes) -> Sequence[Refusal]:
        """Take messages, but for what is refused and what the script has go wrong."""
        self.batches.append(len(messages))
        fault = self.faults.pop(0) if self.faults else None
        if fault is Fault.BEFORE:
            raise SinkUnavailableError("the target is away")
        refusals = self._refusals(messages)
        places = {one.place for one in refusals}
        taken = [message for place, message in enumerate(messages) if place not in places]
        if self.traits.intake is Intake.WHOLE and (refusals or fault is Fault.HALFWAY):
            taken = []
        elif self.traits.intake is Intake.WHOLE:
            self._mark = mark
        self.arrived += taken[: len(taken) // 2] if fault is Fault.HALFWAY else taken
        if fault is not None:
            raise SinkUnavailableError("the answer of the target was lost")
        return refusals

    def close(self) -> None:
        """Disconnect."""
        self.closed = True

    def _refusals(self, messages: Sequence[Message]) -> list[Refusal]:
        refusals = []
        held: set[tuple[str, bytes]] = set()
        for place, message in enumerate(messages):
            row = (message.change.schema.table.wire, message.change.key)
            reason = self.refuses(message)
            if reason is None and self.traits.intake is Intake.KEYED and row in held:
                reason = "an earlier message of its key was refused"
            if reason is not None:
                refusals.append(Refusal(place, reason, self.answer))
                held.add(row)
        return refusals
