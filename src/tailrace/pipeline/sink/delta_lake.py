"""Where the Delta tables of a sink are: in directories of this machine, or below prefixes of a bucket."""

import re
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable
from msgspec import Struct, structs

from tailrace.model.errors import SinkRefusedError
from tailrace.model.table import TableName, TableSchema
from tailrace.pipeline.sink.local_storage import LocalStorage
from tailrace.pipeline.sink.object_place import ObjectPlace
from tailrace.pipeline.sink.storage import Storage
from tailrace.pipeline.sink.upkeep import TableLayout
from tailrace.sink_url import spelled

__all__ = ["DeltaLake"]

_ODD = re.compile(r"[%/\\*\[\]?#\x00-\x1f]")
_ODD_ON_DISK = re.compile(r"[%/\\*\[\]\x00-\x1f]")
"""Characters that delta-rs takes for something else than a part of a name."""


class DeltaLake(Struct, frozen=True):
    """One place for each table, by a template of its path. Picklable.

    Raises:
        ConfigError: The template is none.
    """

    template: str
    objects: ObjectPlace | None = None
    """How object storage is reached; None where the template is a path of this machine."""

    layout: TableLayout = TableLayout()
    """How tables are made."""

    def __post_init__(self) -> None:
        spelled(self.template, TableName("source", "table"))

    def uri(self, schema: TableSchema) -> str:
        """Return where a table is, as delta-rs takes it; characters that it misreads are written as codes."""
        odd = _ODD_ON_DISK if self.objects is None else _ODD
        path = spelled(self.template, schema.table, lambda name: odd.sub(lambda found: f"_{ord(found[0]):02X}", name))
        return str(Path(path)) if self.objects is None else path

    def directory(self, schema: TableSchema) -> Path | None:
        """Return the directory of a table; None in object storage."""
        return Path(self.uri(schema)) if self.objects is None else None

    def files(self, schema: TableSchema) -> Storage:
        """Return the storage of a table's files."""
        uri = self.uri(schema)
        if self.objects is None:
            return LocalStorage(Path(uri))
        from tailrace.pipeline.sink.object_storage import ObjectStorage

        prefix = uri.removeprefix(f"{self.objects.scheme}://{self.objects.bucket}").strip("/")
        return ObjectStorage(structs.replace(self.objects, prefix=prefix))

    def exists(self, schema: TableSchema) -> bool:
        """Tell whether a table is there."""
        if self.objects is None:
            return DeltaTable.is_deltatable(self.uri(schema))
        # delta-rs would hold up all threads of Python until the object storage answers, those that renew leases too.
        return next(self.files(schema).names("_delta_log"), None) is not None

    def table(self, schema: TableSchema) -> DeltaTable:
        """Return a table that is there."""
        return DeltaTable(self.uri(schema), storage_options=self._options)

    def make(self, schema: TableSchema, columns: pa.Schema) -> None:
        """Make a table.

        Raises:
            SinkRefusedError: It lacks a column by which it is to be divided.
        """
        wire = schema.table.wire
        names = self.layout.columns(wire)
        if missing := [name for name in names if name not in columns.names]:
            raise SinkRefusedError(f"there is no column {missing[0]!r} to partition the table by", table=wire)
        DeltaTable.create(
            self.uri(schema),
            columns,
            partition_by=names or None,
            configuration=dict(self.layout.properties) or None,
            storage_options=self._options,
            raise_if_key_not_exists=all(name.startswith("delta.") for name in self.layout.properties),
        )

    @property
    def _options(self) -> dict[str, str] | None:
        return None if self.objects is None else self.objects.for_delta
