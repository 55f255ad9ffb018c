"""Pipelines in the metadata database for whoever looks after them: servers, commands, and workers with them."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, delete, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from tailrace.meta.database import Store
from tailrace.meta.dead_letter import pipeline_of_sink
from tailrace.meta.pipeline import Definition, Figures, Pipeline, RangeProgress
from tailrace.meta.pipeline_row import Numbers, encode, pipeline_of, range_of, subscribe_values
from tailrace.meta.table import (
    NAME_MAX,
    SERVER_MAX,
    SINK_MAX,
    dead_letter,
    pipeline,
    pipeline_range,
    progress,
    subscribe,
)
from tailrace.model.errors import InvalidRequestError, MetadataError, PipelineExistsError, UnknownPipelineError

__all__ = ["PipelineCatalog"]

_NONE = Numbers()


class PipelineCatalog(Store):
    """All pipelines of a metadata database."""

    def create(self, definition: Definition, numbers: Numbers = _NONE) -> None:
        """Keep a new pipeline. Whichever worker is free takes it up.

        Raises:
            PipelineExistsError: There is one of that name.
            InvalidRequestError: A URL or a name cannot be kept.
        """
        _check(definition)

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
                    figures=encode(Figures()),
                )
            )
            tables = enumerate(definition.tables, 1)
            rows = [subscribe_values(definition, number, name, numbers) for number, name in tables]
            connection.execute(insert(subscribe), rows)

        try:
            self._transact(run)
        except MetadataError as error:
            if isinstance(error.__cause__, IntegrityError):
                raise PipelineExistsError(definition.name) from error
            raise

    def alter(self, definition: Definition) -> None:
        """Keep another server, sink, transformation or policy of the pipeline of that name; its worker notices.

        Raises:
            UnknownPipelineError: There is none of that name.
            InvalidRequestError: A URL cannot be kept.
        """
        _check(definition)
        self.get(definition.name)

        def run(connection: Connection) -> None:
            mine = pipeline.c.name == definition.name
            connection.execute(update(pipeline).where(mine).values(definition=encode(definition)))
            rows = subscribe.c.subscribe_name == definition.name
            shown = {"master_addrs": definition.server, "sink": definition.sink}
            connection.execute(update(subscribe).where(rows).values(shown))
            held = connection.execute(select(subscribe).where(rows)).mappings().all()
            kept = [row["table_name"] for row in held]
            gone = [name for name in kept if name not in definition.tables]
            connection.execute(delete(subscribe).where(rows, subscribe.c.table_name.in_(gone)))
            number = max((row["table_id"] for row in held), default=0)
            for table in definition.tables:
                if table not in kept:
                    number += 1
                    like = Numbers(held[0]["cluster_id"], held[0]["db_id"]) if held else _NONE
                    values = subscribe_values(definition, number, table, like)
                    connection.execute(insert(subscribe).values({**values, "owner": held[0]["owner"] if held else ""}))

        self._transact(run)

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
        return self.progress_of_all(progress.c.subscribe_name == name).get(name, [])

    def progress_of_all(self, *where: Any) -> Mapping[str, Sequence[RangeProgress]]:
        """Return how far the ranges of all pipelines are, by pipeline; those that have not registered are left out."""

        def run(connection: Connection) -> Mapping[str, Sequence[RangeProgress]]:
            joined = progress.join(
                pipeline_range,
                (progress.c.subscribe_name == pipeline_range.c.pipeline)
                & (progress.c.table_name == pipeline_range.c.table_name)
                & (progress.c.range_id == pipeline_range.c.range_id),
            )
            columns = [*progress.c, pipeline_range.c.after_key, pipeline_range.c.through_key]
            wanted = select(*columns, pipeline_range.c.rows_copied).select_from(joined).where(*where)
            found: dict[str, list[RangeProgress]] = {}
            for row in connection.execute(wanted.order_by(progress.c.table_name, progress.c.range_id)).mappings():
                found.setdefault(row["subscribe_name"], []).append(range_of(row))
            return found

        return self._transact(run)

    def letters_of_all(self) -> Mapping[str, int]:
        """Return how many changes are parked that sinks refused, by pipeline; those that have none are left out."""
        counts = select(dead_letter.c.sink, func.count()).group_by(dead_letter.c.sink)
        rows = self._transact(lambda connection: connection.execute(counts).all())
        found = {pipeline_of_sink(sink): count for sink, count in rows}
        return {name: count for name, count in found.items() if name is not None}

    def pause(self, name: str, *, paused: bool) -> None:
        """Pause or resume a pipeline; its worker notices when it renews its lease.

        Raises:
            UnknownPipelineError: There is none of that name.
        """
        self._change(name, {"paused": paused})

    def cancel(self, name: str) -> None:
        """Mark a pipeline as to be removed: whichever worker has it, or is free, stops and removes it.

        Raises:
            UnknownPipelineError: There is none of that name.
        """
        self.get(name)
        self._transact(
            lambda connection: connection.execute(
                update(subscribe).where(subscribe.c.subscribe_name == name).values(cancel=1)
            )
        )

    def _change(self, name: str, values: Mapping[str, Any]) -> None:
        statement = update(pipeline).where(pipeline.c.name == name).values(values)
        self.get(name)
        self._transact(lambda connection: connection.execute(statement))


def _check(definition: Definition) -> None:
    """Refuse what the columns of JimDB's tables do not take. The URLs are not shown: they may hold a password.

    That of the server may not: it is shown to others, and no worker would use it.
    """
    if "@" in definition.server.partition("://")[2].partition("/")[0]:
        raise InvalidRequestError("the server URL must not contain a user: workers use a token")
    limits = {
        "the URL of the sink": (definition.sink, SINK_MAX),
        "the URL of the server": (definition.server, SERVER_MAX),
        "the name of the source": (definition.source, NAME_MAX),
        "the name of a table": (max(definition.tables, key=len, default=""), NAME_MAX),
    }
    for what, (text, most) in limits.items():
        if len(text) > most:
            raise InvalidRequestError(f"{what} has up to {most} characters")
        if "\0" in text:
            raise InvalidRequestError(f"{what} contains a NUL character, which not every database can store")
