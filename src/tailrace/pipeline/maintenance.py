"""When the tables of a pipeline's sink are maintained: when people ask for it, and by a schedule."""

import logging
from collections.abc import Callable, Sequence

from msgspec import structs

from tailrace.clock import Clock
from tailrace.meta.pipeline import Definition, Lease
from tailrace.model.errors import SinkError
from tailrace.model.table import TableSchema
from tailrace.pipeline.errors import PipelineError
from tailrace.pipeline.sink.upkeep import TableUpkeep, UpkeepOptions
from tailrace.pipeline.sinks import sink_of
from tailrace.pipeline.store import PipelineStore
from tailrace.sink_url import Secrets

__all__ = ["Maintenance", "maintain"]

logger = logging.getLogger(__name__)


def maintain(
    definition: Definition, schemas: Sequence[TableSchema], options: UpkeepOptions, secrets: Secrets | None = None
) -> list[TableUpkeep]:
    """Maintain the tables of a pipeline's sink, also while a worker has the pipeline.

    Raises:
        PipelineError: The sink has nothing to maintain.
        SinkError: The sink cannot be reached, or refuses.
    """
    sink = sink_of(definition.sink, definition.mode, pipeline=definition.name, secrets=secrets)
    upkeep = sink.traits.upkeep
    if upkeep is None:
        raise PipelineError(f"the sink of pipeline {definition.name!r} needs no maintenance: it is for lakes")
    try:
        return upkeep(schemas, options)
    finally:
        sink.close()


class Maintenance:
    """The schedule of one pipeline, which its worker keeps between batches."""

    def __init__(
        self,
        definition: Definition,
        store: PipelineStore,
        lease: Lease,
        upkeep: Callable[[UpkeepOptions], Sequence[TableUpkeep]],
        clock: Clock,
    ) -> None:
        self._name = definition.name
        self._every_us = round(definition.maintain_every_s * 1e6)
        self._store = store
        self._lease = lease
        self._upkeep = upkeep
        self._clock = clock
        self._due_us: int | None = None

    def tend(self) -> None:
        """Maintain the tables if it is time. What goes wrong is for the log: it is tried again the next time."""
        if not self._every_us:
            return
        if self._due_us is None:
            last_us = self._store.get(self._name).figures.maintained_time_us
            self._due_us = self._note() if not last_us else last_us + self._every_us
        if self._clock.now_us() < self._due_us:
            return
        try:
            for one in self._upkeep(UpkeepOptions()):
                logger.info("table maintained", extra={"pipeline": self._name, **structs.asdict(one)})
        except SinkError as error:
            logger.warning("tables not maintained", extra={"pipeline": self._name, "problem": str(error)})
        self._due_us = self._note()

    def _note(self) -> int:
        """Keep when tables were maintained, or the schedule began; return when it is time again."""
        now_us = self._clock.now_us()
        figures = self._store.get(self._name).figures
        self._store.note(self._lease, structs.replace(figures, maintained_time_us=now_us))
        return now_us + self._every_us
