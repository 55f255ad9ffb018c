"""Pipelines in the metadata database as their workers have them: who has which, and how far they are.

Whoever has a pipeline has a lease, which ends by itself. Each write of a worker goes with the term of its lease: one
that was taken over writes nothing more, however late it notices.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, delete, insert, select, update

from tailrace.meta.dead_letter import sink_of_pipeline
from tailrace.meta.pipeline import Copying, Figures, Lease, Pipeline, SinkState, Stage, moved
from tailrace.meta.pipeline_catalog import PipelineCatalog
from tailrace.meta.pipeline_row import encode, progress_values
from tailrace.meta.table import dead_letter, pipeline, pipeline_range, progress, subscribe
from tailrace.model.errors import UnknownPipelineError
from tailrace.model.key_interval import KeyInterval
from tailrace.pipeline.errors import LeaseError

__all__ = ["PipelineStore"]


class PipelineStore(PipelineCatalog):
    """All pipelines of a metadata database, and what their workers note.

    Methods that take a lease raise `LeaseError` where another worker has the pipeline.
    """

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
        """Forget a pipeline, its progress and its dead letters."""

        def run(connection: Connection) -> None:
            _forget(connection, lease.name)
            connection.execute(delete(dead_letter).where(dead_letter.c.sink == sink_of_pipeline(lease.name)))
            connection.execute(delete(subscribe).where(subscribe.c.subscribe_name == lease.name))
            connection.execute(delete(pipeline).where(pipeline.c.name == lease.name))

        self._fenced(lease, run)

    def reset(self, lease: Lease) -> None:
        """Forget the progress of a pipeline: it registers again."""
        generation = self.get(lease.name).generation + 1
        values = {"generation": generation, "subscription": None, "copying": None}
        self._fenced(lease, lambda connection: _forget(connection, lease.name), **values, figures=encode(Figures()))

    def rebase(self, lease: Lease, *, version: int, subscription: str | None) -> None:
        """Let the log follow from offset `version` on.

        What the sink lacks of the changes before is to be copied by comparing; see `Job`.
        """
        generation = self.get(lease.name).generation + 1

        def run(connection: Connection) -> None:
            mine = progress.c.subscribe_name == lease.name
            offsets = {"progress_init_snapshot_version": version, "progress_last_log_index": version}
            connection.execute(update(progress).where(mine).values(offsets))

        values = {"generation": generation, "sink_state": SinkState.STALE, "subscription": subscription}
        self._fenced(lease, run, **values)

    def compared(self, lease: Lease) -> None:
        """Note that the sink has nothing of before any more that the source has not."""
        self._fenced(lease, lambda connection: None, sink_state=SinkState.SHARED)

    def register(
        self,
        lease: Lease,
        plan: Mapping[str, Sequence[KeyInterval]],
        *,
        source: str,
        version: int,
        sink_state: SinkState,
        figures: Figures,
    ) -> None:
        """Keep the ranges of all tables, which are to be copied; the log follows from offset `version` on."""

        def run(connection: Connection) -> None:
            for table, ranges in plan.items():
                for number, within in enumerate(ranges, 1):
                    progress_row, bounds = progress_values(lease.name, source, table, number, version, within)
                    connection.execute(insert(progress).values(progress_row))
                    connection.execute(insert(pipeline_range).values(bounds))

        self._fenced(lease, run, sink_state=sink_state, figures=encode(figures))

    def add_tables(
        self,
        lease: Lease,
        plan: Mapping[str, Sequence[KeyInterval]],
        *,
        source: str,
        version: int,
        reached: int,
        stage: Stage,
        sink_state: SinkState,
        figures: Figures,
    ) -> None:
        """Keep the ranges of further tables, which are to be copied; the log is followed as it is for the others.

        Their stage is `REGISTER` where those of the others are not copied yet, for want of a subscription.
        """

        def run(connection: Connection) -> None:
            for table, ranges in plan.items():
                for number, within in enumerate(ranges, 1):
                    row, bounds = progress_values(lease.name, source, table, number, version, within)
                    row |= {"progress_stage": int(stage), "progress_last_log_index": reached}
                    connection.execute(insert(progress).values(row))
                    connection.execute(insert(pipeline_range).values(bounds))

        self._fenced(lease, run, sink_state=sink_state, figures=encode(figures))

    def drop_tables(self, lease: Lease, tables: Collection[str]) -> None:
        """Forget the progress of some tables."""
        copying = self.get(lease.name).copying

        def run(connection: Connection) -> None:
            for table in tables:
                connection.execute(
                    delete(progress).where(progress.c.subscribe_name == lease.name, progress.c.table_name == table)
                )
                here = (pipeline_range.c.pipeline == lease.name, pipeline_range.c.table_name == table)
                connection.execute(delete(pipeline_range).where(*here))

        stale = copying is not None and copying.table in tables
        self._fenced(lease, run, **({"copying": None} if stale else {}))

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

    def _fenced(self, lease: Lease, statements: Callable[[Connection], Any], **values: Any) -> None:
        """Run statements in a transaction that counts only while the lease does."""
        held = (pipeline.c.name == lease.name, pipeline.c.term == lease.term, pipeline.c.owner == lease.owner)

        def run(connection: Connection) -> None:
            touched = connection.execute(update(pipeline).where(*held).values({"term": lease.term, **values}))
            if touched.rowcount != 1:
                raise LeaseError(lease.name)
            statements(connection)

        self._transact(run)


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
