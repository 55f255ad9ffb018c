"""Reading the rows of ranges of a table from a server, typed or as images."""

from collections.abc import Iterator

import pyarrow as pa
from msgspec import Struct

from tailrace.client.bulk_rows import BulkRowsClient
from tailrace.model.key_interval import KeyInterval
from tailrace.model.table import TableSchema
from tailrace.pipeline.change_rows import change_schema
from tailrace.pipeline.decode import read_rows
from tailrace.pipeline.errors import SchemaMovedError
from tailrace.pipeline.image_rows import IMAGE_SCHEMA, image_page
from tailrace.pipeline.typed import arrow_type, is_read_as

__all__ = ["RANGE", "RowsTask", "interval_rows"]

RANGE = "_range"
"""Column that tells which range a row is of."""


class RowsTask(Struct, frozen=True):
    """Which rows are to be read, and from where."""

    server: str
    token: str | None
    source: str
    schema: TableSchema
    intervals: dict[int, KeyInterval]
    images: bool = False
    """Whether rows are wanted as images, in place of typed columns."""

    @property
    def row_schema(self) -> pa.Schema:
        """Return the columns of what is read."""
        return IMAGE_SCHEMA if self.images else change_schema(self.schema)


def interval_rows(task: RowsTask, number: int) -> Iterator[pa.Table]:
    """Yield the rows of one range, page by page.

    Raises:
        SchemaMovedError: The table has another schema now.
        MisfitError: A value does not fit its column's type.
        ClientError: The server cannot be reached, or refused.
    """
    client = BulkRowsClient(task.server, task.token)
    try:
        # Columns that are to be text or bytes are made of images, where they look as in the log.
        typed = not task.images and not any(is_read_as(arrow_type(one)) for one in task.schema.columns if one.as_type)
        for page in client.rows(task.source, task.schema.table.wire, task.intervals[number], typed=typed):
            if page.schema.version != task.schema.version:
                raise SchemaMovedError(task.schema.table.wire)
            rows = image_page(page) if task.images else read_rows(page, task.schema)
            yield rows.append_column(RANGE, pa.repeat(pa.scalar(number, pa.int64()), rows.num_rows))
    finally:
        client.close()
