"""Changes as Parquet files."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

__all__ = ["ParquetFormat"]

_ROWS_IN_GROUP_MAX = 1 << 18


class ParquetFormat:
    """Parquet, compressed with zstd."""

    suffix = "parquet"

    def write(self, path: Path, changes: pa.Table) -> None:
        """Write all changes into a new file."""
        pq.write_table(changes, path, compression="zstd", row_group_size=_ROWS_IN_GROUP_MAX)

    def read(self, path: Path, schema: pa.Schema) -> pa.Table:
        """Read a file."""
        return pq.read_table(path, schema=schema, partitioning=None)
