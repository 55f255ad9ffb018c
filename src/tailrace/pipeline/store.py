"""Pipelines in the metadata database: what they are, who has them, and how far they are.

Whoever has a pipeline has a lease, which ends by itself. Each write of a worker goes with the term of its lease: one
that was taken over writes nothing more, however late it notices.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, delete, func, insert, select, update
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from tailrace.clock import Clock
from tailrace.meta.pipeline_table import create_pipeline_tables, pipeline, pipeline_range, progress, subscribe
from tailrace.meta.store import open_engine
from tailrace.model.errors import MetadataError
from tailrace.model.key_interval import KeyInterval
from tailrace.pipeline.definition import Definition
from tailrace.pipeline.errors import LeaseError, PipelineExistsError, UnknownPipelineError
from tailrace.pipeline.record import (
    Copying,
    Figures,
    Lease,
    Pipeline,
    RangeProgress,
    encode,
    pipeline_of,
    progress_values,
    range_of,
    subscribe_values,
)
from tailrace.pipeline.stage import Stage, moved

__all__ = ["PipelineStore"]

_T = TypeVar("_T")


class PipelineStore:
    """All pipelines of a metadata database. For any number of threads; what a method wrote is durable on return.

    All methods raise `MetadataError` where the database refuses, those that take a lease `LeaseError` where another
    worker has the pipeline.
    """

    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock
        self._transact(create_pipeline_tables)

    @classmethod
    def open(cls, url: str, clock: Clock) -> "PipelineStore":
        """Connect to the database at an SQLAlchemy URL and make the tables that are missing.

        Raises:
            ConfigError: The URL is malformed or its driver is not installed.
        """
        return cls(open_engine(url), clock)

    @property
    def url(self) -> str:
        """Return the URL of the database, with its password."""
        return self._engine.url.render_as_string(hide_password=False)

    def close(self) -> None:
        """Disconnect."""
        self._engine.dispose()

    def create(self, definition: Definition) -> None:
        """Keep a new pipeline.

        Raises:
            PipelineExistsError: There is one of that name.
        """

        def run(connection: Connection) -> None:
            connection.execute(
                insert(pipeline).values(
                    name=definition.name,
                    definition=encode(definition),
                    created_time_us=self._clock.now_us(),
                    owner="",
                    term=0,
                    lease_end_us=0,
                    generation=0,
                    number_min=0,
                    figures=encode(Figures()),
                )
            )
            rows = [subscribe_values(definition, number, name) for number, name in enumerate(definition.tables, 1)]
            connection.execute(insert(subscribe), rows)

        try:
            self._transact(run)
        except IntegrityError as error:
            raise PipelineExistsError(definition.name) from error

    def get(self, name: str) -> Pipeline:
        """Return a pipeline.

        Raises:
            UnknownPipelineError: There is none of that name.
        """
        found = [one for one in self.all(pipeline.c.name == name) if one.definition.name == name]
        if not found:
            raise UnknownPipelineError(name)
        return found[0]

    def all(self, *where: Any) -> Sequence[Pipeline]:
        """Return all pipelines in order of their names."""

        def run(connection: Connection) -> Sequence[Pipeline]:
            cancels = select(subscribe.c.subscribe_name, func.max(subscribe.c.cancel)).group_by(
                subscribe.c.subscribe_name
            )
            cancelled = {row[0]: row[1] for row in connection.execute(cancels)}
            rows = connection.execute(select(pipeline).where(*where).order_by(pipeline.c.name)).mappings()
            return [pipeline_of(row, cancelled.get(row["name"], 0), self._clock.now_us()) for row in rows]

        return self._transact(run)

    def progress(self, name: str) -> Sequence[RangeProgress]:
        """Return how far the ranges of a pipeline are, in order of tables and ranges; none before it registers."""

        def run(connection: Connection) -> Sequence[RangeProgress]:
            joined = progress.join(
                pipeline_range,
                (progress.c.subscribe_name == pipeline_range.c.pipeline)
                & (progress.c.table_name == pipeline_range.c.table_name)
                & (progress.c.range_id == pipeline_range.c.range_id),
            )
            columns = [*progress.c, pipeline_range.c.after_key, pipeline_range.c.through_key]
            wanted = select(*columns, pipeline_range.c.rows_copied).select_from(joined)
            wanted = wanted.where(progress.c.subscribe_name == name)
            rows = connection.execute(wanted.order_by(progress.c.table_name, progress.c.range_id))
            return [range_of(row) for row in rows.mappings()]

        return self._transact(run)

    def pause(self, name: str, *, paused: bool) -> None:
        """Pause or resume a pipeline; its worker notices when it renews its lease.

        Raises:
            UnknownPipelineError: There is none of that name.
        """
        self._change(name, {"paused": paused})

    def cancel(self, name: str) -> None:
        """Mark a pipeline as to be removed: its worker stops.

        Raises:
            UnknownPipelineError: There is none of that name.
        """
        self.get(name)
        self._transact(
            lambda connection: connection.execute(
                update(subscribe).where(subscribe.c.subscribe_name == name).values(cancel=1)
            )
        )

    def acquire(self, name: str, owner: str, lease_s: float) -> Lease:
        """Take a pipeline that nobody has, or whose owner's lease has ended.

        Raises:
            LeaseError: Another worker has it.
            UnknownPipelineError: There is none of that name.
        """
        now_us = self._clock.now_us()

        def run(connection: Connection) -> Lease:
            mine = pipeline.c.name == name
            row = connection.execute(select(pipeline).where(mine)).mappings().one_or_none()
            if row is None:
                raise UnknownPipelineError(name)
            if row["owner"] not in {"", owner} and row["lease_end_us"] > now_us:
                raise LeaseError(name, row["owner"])
            taken = connection.execute(
                update(pipeline)
                .where(mine, pipeline.c.term == row["term"])
                .values(owner=owner, term=row["term"] + 1, lease_end_us=now_us + round(lease_s * 1e6))
            )
            if taken.rowcount != 1:
                raise LeaseError(name, "that was quicker")
            connection.execute(update(subscribe).where(subscribe.c.subscribe_name == name).values(owner=owner))
            return Lease(name, owner, row["term"] + 1)

        return self._transact(run)

    def renew(self, lease: Lease, lease_s: float) -> Pipeline:
        """Keep a lease for longer; return the pipeline as it is now."""
        end = self._clock.now_us() + round(lease_s * 1e6)
        self._fenced(lease, lambda connection: None, lease_end_us=end)
        return self.get(lease.name)

    def release(self, lease: Lease) -> None:
        """Give a lease up, so that others need not wait for its end."""

        def run(connection: Connection) -> None:
            connection.execute(update(subscribe).where(subscribe.c.subscribe_name == lease.name).values(owner=""))

        self._fenced(lease, run, owner="", lease_end_us=0)

    def remove(self, lease: Lease) -> None:
        """Forget a pipeline and its progress."""

        def run(connection: Connection) -> None:
            _forget(connection, lease.name)
            connection.execute(delete(subscribe).where(subscribe.c.subscribe_name == lease.name))
            connection.execute(delete(pipeline).where(pipeline.c.name == lease.name))

        self._fenced(lease, run)

    def reset(self, lease: Lease, number_min: int) -> None:
        """Forget the progress of a pipeline: it registers anew, with batches from `number_min` on."""
        generation = self.get(lease.name).generation + 1
        values = {"generation": generation, "number_min": number_min, "subscription": None, "copying": None}
        self._fenced(lease, lambda connection: _forget(connection, lease.name), **values, figures=encode(Figures()))

    def register(
        self,
        lease: Lease,
        plan: Mapping[str, Sequence[KeyInterval]],
        *,
        source: str,
        version: int,
        number_min: int,
        figures: Figures,
    ) -> None:
        """Keep the ranges of all tables, which are to be copied; the log follows from offset `version` on."""

        def run(connection: Connection) -> None:
            for table, ranges in plan.items():
                for number, within in enumerate(ranges, 1):
                    kept, bounds = progress_values(lease.name, source, table, number, version, within)
                    connection.execute(insert(progress).values(kept))
                    connection.execute(insert(pipeline_range).values(bounds))

        self._fenced(lease, run, number_min=number_min, figures=encode(figures))

    def subscribed(self, lease: Lease, subscription: str | None) -> None:
        """Note the server's subscription, and let all ranges be copied."""
        self._fenced(lease, _mover(lease.name, Stage.SNAPSHOT), subscription=subscription)

    def begin_copy(self, lease: Lease, copying: Copying) -> None:
        """Note which keys go into the sink next."""
        self._fenced(lease, lambda connection: None, copying=encode(copying))

    def finish_copy(self, lease: Lease, copying: Copying, *, version: int, rows: Mapping[int, int]) -> None:
        """Note that those keys are in the sink, as of offset `version`."""

        def run(connection: Connection) -> None:
            for range_id, interval in copying.intervals.items():
                here = _of_range(progress.c, progress.c.subscribe_name, lease.name, copying.table, range_id)
                values: dict[str, Any] = {"progress_current_snapshot_version": version}
                if interval.through is not None:
                    values["progress_last_snapshot_key"] = interval.through
                if range_id in copying.ends:
                    values["progress_stage"] = int(moved(Stage.SNAPSHOT, Stage.INCREMENTAL_LOG))
                connection.execute(update(progress).where(*here).values(values))
                copied = pipeline_range.c.rows_copied + rows.get(range_id, 0)
                there = _of_range(pipeline_range.c, pipeline_range.c.pipeline, lease.name, copying.table, range_id)
                connection.execute(update(pipeline_range).where(*there).values(rows_copied=copied))

        self._fenced(lease, run, copying=None)

    def advance(self, lease: Lease, offset: int, figures: Figures) -> None:
        """Note that the sink has all changes up to an offset."""

        def run(connection: Connection) -> None:
            behind = (progress.c.subscribe_name == lease.name, progress.c.progress_last_log_index < offset)
            connection.execute(update(progress).where(*behind).values(progress_last_log_index=offset))

        self._fenced(lease, run, figures=encode(figures))

    def fail(self, lease: Lease, figures: Figures) -> None:
        """Note that the pipeline cannot go on by itself."""
        self._fenced(lease, _mover(lease.name, Stage.FAILED), figures=encode(figures))

    def note(self, lease: Lease, figures: Figures) -> None:
        """Note how it goes, for people."""
        self._fenced(lease, lambda connection: None, figures=encode(figures))

    def _change(self, name: str, values: Mapping[str, Any]) -> None:
        statement = update(pipeline).where(pipeline.c.name == name).values(values)
        self.get(name)
        self._transact(lambda connection: connection.execute(statement))

    def _fenced(self, lease: Lease, statements: Callable[[Connection], Any], **values: Any) -> None:
        """Run statements in a transaction that counts only while the lease does."""
        held = (pipeline.c.name == lease.name, pipeline.c.term == lease.term, pipeline.c.owner == lease.owner)

        def run(connection: Connection) -> None:
            touched = connection.execute(update(pipeline).where(*held).values({"term": lease.term, **values}))
            if touched.rowcount != 1:
                raise LeaseError(lease.name)
            statements(connection)

        self._transact(run)

    def _transact(self, statements: Callable[[Connection], _T]) -> _T:
        try:
            with self._engine.begin() as connection:
                return statements(connection)
        except IntegrityError:
            raise
        except SQLAlchemyError as error:
            raise MetadataError(f"the metadata database refused: {type(error).__name__}") from error


def _mover(name: str, to: Stage) -> Callable[[Connection], None]:
    """Return what moves all ranges of a pipeline to a stage."""

    def run(connection: Connection) -> None:
        mine = progress.c.subscribe_name == name
        for stage in connection.execute(select(progress.c.progress_stage).where(mine).distinct()).scalars().all():
            moved(Stage(stage), to)
        connection.execute(update(progress).where(mine).values(progress_stage=int(to)))

    return run


def _of_range(columns: Any, owner: Any, name: str, table: str, range_id: int) -> tuple[Any, ...]:
    return owner == name, columns.table_name == table, columns.range_id == range_id


def _forget(connection: Connection, name: str) -> None:
    """Remove the progress of a pipeline."""
    connection.execute(delete(progress).where(progress.c.subscribe_name == name))
    connection.execute(delete(pipeline_range).where(pipeline_range.c.pipeline == name))
