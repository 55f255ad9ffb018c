"""Stages of a range of a pipeline, as JimDB has them: forward only, retried in place. Pure."""

from collections.abc import Mapping
from enum import IntEnum

from tailrace.model.errors import MetadataError

__all__ = ["MOVES", "Stage", "moved"]


class Stage(IntEnum):
    """How far a range is; the numbers are those in the table `progress`."""

    REGISTER = 0
    """Planned: its rows have not been read."""

    SNAPSHOT = 1
    """Its rows are being copied."""

    INCREMENTAL_LOG = 2
    """Its rows are in the sink; changes follow."""

    FAILED = 3
    """It cannot go on by itself: the pipeline must be reset."""

    @property
    def word(self) -> str:
        """Return the stage's name on the wires."""
        return self.name.lower()


MOVES: Mapping[Stage, frozenset[Stage]] = {
    Stage.REGISTER: frozenset({Stage.SNAPSHOT, Stage.FAILED}),
    Stage.SNAPSHOT: frozenset({Stage.INCREMENTAL_LOG, Stage.FAILED}),
    Stage.INCREMENTAL_LOG: frozenset({Stage.FAILED}),
    Stage.FAILED: frozenset(),
}
"""Stages that may follow each stage. Staying is allowed: what failed is tried again where it was."""


def moved(now: Stage, to: Stage) -> Stage:
    """Return the stage after a move.

    Raises:
        MetadataError: No such move is allowed: someone else has changed the table.
    """
    if to is not now and to not in MOVES[now]:
        raise MetadataError(f"a range cannot move from stage {now.word} to {to.word}")
    return to
