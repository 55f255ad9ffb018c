"""How a pipeline is, for people and programs. Pure."""

from collections.abc import Sequence

from msgspec import Struct

from tailrace.pipeline.record import Pipeline, RangeProgress
from tailrace.pipeline.stage import Stage

__all__ = ["RangeStatus", "Status", "status_of"]


class RangeStatus(Struct, frozen=True):
    """How far a range of a table is."""

    table: str
    range_id: int
    stage: str
    rows_copied: int
    last_key: str | None


class Status(Struct, frozen=True):
    """How a pipeline is. `offset` is how far the sink is in the log, `lag` how many changes it lacks."""

    name: str
    state: str
    """`new`, `idle`, `running`, `paused`, `failed`, or `removed` while its worker has yet to stop."""

    stage: str
    source: str
    tables: tuple[str, ...]
    sink: str
    mode: str | None
    server: str
    owner: str
    rows: int
    rows_copied: int
    offset: int
    head: int
    lag: int
    changes: int
    changes_per_s: float
    letters: int
    """Changes that the sink refused and that are parked."""

    problem: str
    subscription: str | None
    ranges: list[RangeStatus]


def status_of(found: Pipeline, ranges: Sequence[RangeProgress], head: int | None, letters: int = 0) -> Status:
    """Return how a pipeline is; `head` is that of its log where somebody knows it."""
    definition, figures = found.definition, found.figures
    offset = min((one.last_log_index for one in ranges), default=0)
    known = max(offset, figures.head if head is None else head)
    return Status(
        name=definition.name,
        state=_state(found, ranges),
        stage=_stage(ranges).word,
        source=definition.source,
        tables=definition.tables,
        sink=definition.shown_sink,
        mode=definition.mode,
        server=definition.server,
        owner=found.owner if found.leased else "",
        rows=figures.rows,
        rows_copied=sum(one.rows_copied for one in ranges),
        offset=offset,
        head=known,
        lag=known - offset if ranges else 0,
        changes=figures.changes,
        changes_per_s=figures.changes_per_s if found.leased else 0.0,
        letters=letters,
        problem=figures.problem,
        subscription=found.subscription,
        ranges=[RangeStatus(one.table, one.range_id, one.stage.word, one.rows_copied, one.last_key) for one in ranges],
    )


def _state(found: Pipeline, ranges: Sequence[RangeProgress]) -> str:
    if found.cancelled:
        return "removed"
    if any(one.stage is Stage.FAILED for one in ranges):
        return "failed"
    if found.paused:
        return "paused"
    if found.leased:
        return "running"
    return "idle" if ranges else "new"


def _stage(ranges: Sequence[RangeProgress]) -> Stage:
    """Return the stage of a pipeline: that of the range that is least far, or failed."""
    stages = {one.stage for one in ranges}
    if Stage.FAILED in stages:
        return Stage.FAILED
    return min(stages, default=Stage.REGISTER)
