"""Record batches as the messages of an Arrow IPC stream. Pure."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Any

import pyarrow as pa

__all__ = ["CONTENT_TYPE", "END", "BulkEncoder", "Compression"]

CONTENT_TYPE = "application/vnd.apache.arrow.stream"

END = b"\xff\xff\xff\xff\0\0\0\0"
"""The message that ends a stream. A stream without it is not whole."""


class Compression(StrEnum):
    """How the buffers of each batch are compressed."""

    NONE = "none"
    LZ4 = "lz4"
    ZSTD = "zstd"


class BulkEncoder:
    """Encodes the batches of one stream."""

    def __init__(self, schema: pa.Schema, compression: Compression) -> None:
        self._schema = schema
        self._options = (
            None if compression is Compression.NONE else pa.ipc.IpcWriteOptions(compression=str(compression))
        )
        self.head: Any = schema.serialize()
        """The message that a stream begins with."""

    def encode_run(self, batches: Sequence[pa.RecordBatch]) -> list[tuple[int, Any]]:
        """Return how many changes each of several batches has, and its message; nothing for those that are empty."""
        return [(batch.num_rows, self.encode(batch)) for batch in batches if batch.num_rows]

    def encode(self, batch: pa.RecordBatch) -> Any:
        """Return the message of a batch: bytes, or what can be used in their place."""
        if self._options is None:
            return batch.serialize()
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self._schema, options=self._options) as writer:
            writer.write_batch(batch.replace_schema_metadata(self._schema.metadata))
        whole = sink.getvalue()
        return whole.slice(self.head.size, whole.size - self.head.size - len(END))
