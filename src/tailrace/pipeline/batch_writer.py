"""What Spark calls with each micro-batch: it puts the changes into the sink, once."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.client.bulk import BulkClient
from tailrace.model.table import TableSchema
from tailrace.pipeline.copy import next_number
from tailrace.pipeline.decode import changes_of_json
from tailrace.pipeline.definition import Definition
from tailrace.pipeline.sink.base import Batch, Progress, Sink
from tailrace.pipeline.sink.catalog_session import UsesSpark
from tailrace.pipeline.sink_thread import SinkThread
from tailrace.pipeline.sinks import sink_of
from tailrace.pipeline.transform import transformed

__all__ = ["BatchWriter"]


class BatchWriter:
    """Applies micro-batches to the sink of one pipeline.

    A micro-batch that Spark runs again ends at the same offset: the sink's own progress tells whether it has it. Over
    Spark Connect a copy of this runs in the server of Spark and opens the sink there.
    """

    def __init__(
        self,
        definition: Definition,
        token: str | None,
        number_min: int,
        outage_s_max: float,
        proceed: Callable[[], None] | None = None,
        session: Callable[[], Any] | None = None,
    ) -> None:
        self.changes = 0
        """Changes applied so far."""

        self.problem: Exception | None = None
        """Why the last call failed."""

        self.number_min = number_min
        """Least number of the next batch."""

        self._definition = definition
        self._token = token
        self.outage_s_max = outage_s_max
        """Longest time for which what cannot be reached is tried again."""

        self._proceed = proceed
        self._session = session
        self._sink: SinkThread | None = None
        self._versions: dict[tuple[str, int], TableSchema] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_proceed": None, "_session": None, "_sink": None}

    def __call__(self, frame: Any, _batch_id: int) -> None:
        """Apply one micro-batch."""
        self.problem = None
        self._session = self._session or (lambda: frame.sparkSession)
        try:
            self.apply(frame.toArrow(), frame.sparkSession)
        except Exception as error:
            self.problem = error
            raise

    def apply(self, rows: pa.Table, session: Any) -> None:
        """Apply rows in the layout `json`, unless the sink has them.

        Raises:
            MisfitError: A value does not fit its column's type.
            TransformError: The transformation cannot be used.
            SinkError: The sink cannot be reached for long, or refuses.
            LeaseError: This worker no longer has the pipeline.
        """
        if not rows.num_rows:
            return
        definition, sink = self._definition, self.sink()
        through = pc.max(rows["_offset"]).as_py()
        progress = sink.progress()
        if progress is not None and progress.offsets.get(definition.source, 0) >= through:
            return
        tables = changes_of_json(rows, self._known(rows))
        if definition.transform:
            tables = [transformed(one, definition.transform, session) for one in tables]
        number = next_number(progress, self.number_min)
        filled = [one for one in tables if one.changes.num_rows]
        sink.apply(Batch(definition.name, number, {definition.source: through}, filled))
        self.changes += rows.num_rows

    def sink(self) -> SinkThread:
        """Return the sink, opened."""
        return self._opened(anew=False)

    def renewed(self) -> Progress | None:
        """Open the sink although tables of it may be gone, and have it forget those; return how far it is.

        Raises:
            SinkError: The sink cannot be reached, or refuses for another reason.
        """
        return self._opened(anew=True).progress()

    def is_lost(self, rows_copied: int) -> bool:
        """Tell whether a sink that has no progress should have some: rows went into it, and could be read there."""
        sink = self.sink()
        return rows_copied > 0 and not self._definition.transform and all(map(sink.is_readable, self.schemas()))

    def schemas(self) -> list[TableSchema]:
        """Return the newest known schema of each table."""
        newest = {name: self._versions[name, version] for name, version in sorted(self._versions)}
        return list(newest.values())

    def close(self) -> None:
        """Close the sink."""
        if self._sink is not None:
            self._sink.close()
            self._sink = None

    def _opened(self, *, anew: bool) -> SinkThread:
        if self._sink is None:
            proceed = self._proceed or (lambda: None)
            sink = SinkThread(self._build, outage_s_max=self.outage_s_max, proceed=proceed)
            try:
                self._learn()
                sink.open(self.schemas(), anew=anew)
            except BaseException:
                sink.close()
                raise
            self._sink = sink
        return self._sink

    def _build(self) -> Sink:
        definition = self._definition
        sink = sink_of(definition.sink, definition.mode, pipeline=definition.name)
        if isinstance(sink, UsesSpark) and self._session is not None:
            sink.use(self._session)
        return sink

    def _known(self, rows: pa.Table) -> dict[tuple[str, int], TableSchema]:
        """Return the schemas that rows refer to."""
        pairs = rows.group_by(["_table", "_schema_version"]).aggregate([])
        wanted = set(zip(pairs["_table"].to_pylist(), pairs["_schema_version"].to_pylist(), strict=True))
        if not wanted <= self._versions.keys():
            self._learn()
        return self._versions

    def _learn(self) -> None:
        client = BulkClient(self._definition.server, self._token)
        try:
            schemas = client.info(self._definition.source, self._definition.tables).schemas()
        finally:
            client.close()
        self._versions = {(schema.table.wire, schema.version): schema for schema in schemas.values()}
