"""What Spark calls with each micro-batch: it puts the changes into the sink, once."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.client.bulk import BulkClient
from tailrace.message.outbox import OutboxOptions
from tailrace.model.table import TableSchema
from tailrace.pipeline.copy import next_number
from tailrace.pipeline.decode import changes_of_json
from tailrace.pipeline.definition import Definition
from tailrace.pipeline.image_rows import image_changes
from tailrace.pipeline.sink.base import Batch, Sink
from tailrace.pipeline.sink_thread import SinkThread
from tailrace.pipeline.sinks import MessageOptions, sink_of
from tailrace.pipeline.transform import transformed
from tailrace.sink_url import Secrets

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
        *,
        secrets: Secrets | None = None,
        metadata_url: str = "sqlite://",
    ) -> None:
        self.changes = 0
        """Changes applied so far."""

        self.problem: Exception | None = None
        """Why the last call failed."""

        self.number_min = number_min
        """Least number of the next batch."""

        self._definition = definition
        self._token = token
        self._outage_s_max = outage_s_max
        self._proceed = proceed
        self._secrets = secrets
        self._metadata_url = metadata_url
        self._sink: SinkThread | None = None
        self._versions: dict[tuple[str, int], TableSchema] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_proceed": None, "_sink": None}

    def __call__(self, frame: Any, _batch_id: int) -> None:
        """Apply one micro-batch."""
        self.problem = None
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
        if definition.takes_images:
            tables = image_changes(rows, self._known(rows))
        else:
            tables = changes_of_json(rows, self._known(rows))
        if definition.transform:
            tables = [transformed(one, definition.transform, session) for one in tables]
        number = next_number(progress, self.number_min)
        filled = [one for one in tables if one.changes.num_rows]
        sink.apply(Batch(definition.name, number, {definition.source: through}, filled))
        self.changes += rows.num_rows

    def sink(self) -> SinkThread:
        """Return the sink, opened."""
        if self._sink is None:
            proceed = self._proceed or (lambda: None)
            sink = SinkThread(self._build, outage_s_max=self._outage_s_max, proceed=proceed)
            self._learn()
            sink.open(self.schemas())
            self._sink = sink
        return self._sink

    def tend(self) -> None:
        """Have letters sent that somebody wants to be sent again, where the sink is of messages and open here."""
        if self._sink is not None and self._definition.is_message_sink:
            self._sink.tend()

    def schemas(self) -> list[TableSchema]:
        """Return the newest known schema of each table."""
        newest = {name: self._versions[name, version] for name, version in sorted(self._versions)}
        return list(newest.values())

    def close(self) -> None:
        """Close the sink."""
        if self._sink is not None:
            self._sink.close()
            self._sink = None

    def _build(self) -> Sink:
        definition = self._definition
        outbox = OutboxOptions(on_refused=definition.on_refused)
        messages = MessageOptions(self._metadata_url, definition.shape, outbox)
        return sink_of(
            definition.sink, definition.mode, pipeline=definition.name, secrets=self._secrets, messages=messages
        )

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
