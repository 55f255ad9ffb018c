"""How a pipeline is, for people and programs. Pure."""

from collections.abc import Sequence

from msgspec import Struct

from tailrace.meta.pipeline import Pipeline, RangeProgress, Stage

__all__ = ["PipelineStatus", "PipelinesResult", "RangeStatus", "offset_of", "status_of"]


class RangeStatus(Struct, frozen=True):
    """How far a range of a table is."""

    table: str
    range_id: int
    stage: str
    rows_copied: int
    last_key: str | None


class PipelineStatus(Struct, frozen=True):
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
    """About how many rows there are to copy: those that the tables had when they were planned, and more that came."""

    rows_copied: int
    offset: int
    head: int
    lag: int | None
    """Null where nobody knows how far the log is: the server cannot be asked."""

    lag_s: float | None
    """Age of the oldest change that the sink lacks; 0 where it lacks none, null where nobody knows."""

    changes: int
    changes_per_s: float
    rows_per_s: float
    """Rate at which rows are being copied; 0 when none are."""

    batches: int
    """Batches of changes that the newest query of Spark has finished."""

    batch_changes: int
    """Changes of the log, of whatever table, that the newest of these batches spans."""

    batch_s: float
    """How long that batch took, from its trigger to its commit."""

    noted_time_us: int
    """When its worker last reported; 0 for never."""

    letters: int
    """Changes that the sink refused and that are parked."""

    problem: str
    subscription: str | None
    ranges: list[RangeStatus]


class PipelinesResult(Struct, frozen=True):
    """How all pipelines are that someone may see: the body of `/api/v1/pipelines`."""

    pipelines: Sequence[PipelineStatus]


def status_of(
    found: Pipeline,
    ranges: Sequence[RangeProgress],
    *,
    sink: str,
    head: int | None,
    lag_s: float | None = None,
    letters: int = 0,
) -> PipelineStatus:
    """Return how a pipeline is.

    `sink` is what may be shown of its sink's URL; `head` is that of its log, and `lag_s` the age of the oldest change
    that the sink lacks, where someone knows them; `letters` is how many changes are parked.
    """
    definition, figures = found.definition, found.figures
    offset = offset_of(ranges)
    known = max(offset, figures.head if head is None else head)
    lag = 0 if not ranges else None if head is None else known - offset
    rows_copied = sum(one.rows_copied for one in ranges)
    return PipelineStatus(
        name=definition.name,
        state=_state(found, ranges),
        stage=_stage(ranges).word,
        source=definition.source,
        tables=definition.tables,
        sink=sink,
        mode=definition.mode,
        server=definition.server,
        owner=found.owner if found.leased else "",
        rows=max(figures.rows, rows_copied),
        rows_copied=rows_copied,
        offset=offset,
        head=known,
        lag=lag,
        lag_s=0.0 if lag == 0 else lag_s,
        changes=figures.changes,
        changes_per_s=figures.changes_per_s if found.leased else 0.0,
        rows_per_s=figures.rows_per_s if found.leased else 0.0,
        batches=figures.batches,
        batch_changes=figures.batch_changes,
        batch_s=figures.batch_s,
        noted_time_us=figures.time_us,
        letters=letters,
        problem=figures.problem,
        subscription=found.subscription,
        ranges=[RangeStatus(one.table, one.range_id, one.stage.word, one.rows_copied, one.last_key) for one in ranges],
    )


def offset_of(ranges: Sequence[RangeProgress]) -> int:
    """Return the offset up to which a sink has all changes; 0 where nothing has begun."""
    return min((one.last_log_index for one in ranges), default=0)


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
