"""Dead letters: changes that a sink did not take, with the reason why."""

from enum import StrEnum

from msgspec import Struct

from tailrace.model.chunk import Change

__all__ = ["Letter", "LetterDraft", "LetterFigures", "LetterState", "OnRefused", "pipeline_of_sink", "sink_of_pipeline"]

_PIPELINE = "pipeline/"
"""What the name of a pipeline's sink begins with; no other sink may have such a name."""


class OnRefused(StrEnum):
    """What becomes of a change that the target refuses."""

    PARK = "park"
    """It is parked, and so are later changes of its key; the rest goes on."""

    WAIT = "wait"
    """It is parked; the sink stops before the next change of its key until the letter is sent or dropped."""

    STOP = "stop"
    """The sink stops with an error."""


class LetterState(StrEnum):
    """Why a change is parked, or that it is to be sent again."""

    REFUSED = "refused"
    """The target refused it, or it could not be made a message."""

    BEHIND = "behind"
    """An earlier change of its key is parked: it waits for its turn."""

    RETRY = "retry"
    """Marked for retry; its sink sends it next."""

    DROPPED = "dropped"
    """Dropped. It is kept as dropped for a while, so that it is not parked again."""


class LetterDraft(Struct, frozen=True):
    """A letter that has no number yet."""

    message_id: str
    change: Change
    """The change as it came, before the sink's filter, projection and envelope."""

    snapshot: bool
    state: LetterState
    reason: str
    """Why, for people; holds no value of a row."""

    answer: str = ""
    """What the target itself says, in short; it may quote the row. It is kept behind the reason, and never logged."""


class Letter(Struct, frozen=True):
    """One parked change of a sink."""

    id: int
    """From 1, never given twice."""

    sink: str
    message_id: str
    change: Change
    snapshot: bool
    state: LetterState
    reason: str
    parked_time_us: int
    tries: int
    """How often it was refused."""


def sink_of_pipeline(name: str) -> str:
    """Return the name of a pipeline's sink among all sinks: that of its dead letters and of its marks at targets.

    That of a sink stays as it is.
    """
    return name if name.startswith(_PIPELINE) else f"{_PIPELINE}{name}"


def pipeline_of_sink(sink: str) -> str | None:
    """Return the pipeline that a sink is of; None where it is of none."""
    return sink.removeprefix(_PIPELINE) if sink.startswith(_PIPELINE) else None


class LetterFigures(Struct, frozen=True):
    """How many letters a sink has, and since when the oldest is parked; 0 where there is none."""

    letters: int
    oldest_time_us: int
