"""The table schema versions of a shard, kept in `schemas.jsonl`."""

import logging
import zlib
from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from tailrace.log.files import File, Files
from tailrace.model.errors import CorruptSegmentError
from tailrace.model.number import SchemaId
from tailrace.model.table import TableName, TableSchema

__all__ = ["SCHEMAS_NAME", "Schemas", "numbered"]

logger = logging.getLogger(__name__)

SCHEMAS_NAME = "schemas.jsonl"


class _Line(Struct):
    id: SchemaId
    crc: int
    schema: Raw


class Schemas:
    """All schema versions, numbered from 1 in order of arrival; they are never removed.

    One thread at a time may `put`; lookups are safe beside it. `known` is a live mapping that only grows.
    """

    def __init__(self, files: Files) -> None:
        self._files = files
        self._known: dict[SchemaId, TableSchema] = {}
        self._ids: dict[tuple[TableName, int], SchemaId] = {}
        self._latest: dict[TableName, SchemaId] = {}
        self._file: File | None = None
        self._end = 0

    @property
    def known(self) -> Mapping[SchemaId, TableSchema]:
        """Return all versions by number."""
        return self._known

    def latest(self, table: TableName) -> tuple[SchemaId, TableSchema] | None:
        """Return the newest version of a table's schema."""
        number = self._latest.get(table)
        return None if number is None else (number, self._known[number])

    def id_of(self, schema: TableSchema) -> SchemaId | None:
        """Return the number of a version that is already kept.

        Raises:
            ValueError: Another schema is kept under the same table and version.
        """
        number = self._ids.get((schema.table, schema.version))
        if number is not None and self._known[number] != schema:
            raise ValueError(f"version {schema.version} of {schema.table.wire} is already another schema")
        return number

    def versions(self, table: TableName) -> list[TableSchema]:
        """Return all versions of a table's schema, oldest first."""
        found = [schema for schema in self._known.values() if schema.table == table]
        return sorted(found, key=lambda schema: schema.version)

    def load(self) -> int:
        """Read versions that were added since the last time, and return how many bytes of the file are whole lines.

        Raises:
            CorruptSegmentError: A line before the last is damaged.
        """
        try:
            file = self._files.open(SCHEMAS_NAME)
        except FileNotFoundError:
            return 0
        try:
            data = file.read_at(self._end, file.size() - self._end)
        finally:
            file.close()
        begin = 0
        while (stop := data.find(b"\n", begin)) >= 0:
            # A disk writes sectors in any order: of a line that was not synced the end may be there and the beginning
            # not, which then reads as zeros. JSON holds none, so a damaged line that was synced is not taken for it.
            if stop + 1 == len(data) and b"\0" in data[begin:stop]:
                break
            self._add(_decode(data[begin:stop], self._end + begin, len(self._known) + 1))
            begin = stop + 1
        self._end += begin
        return self._end

    def recover(self) -> None:
        """Load, cut a torn last line, and make sure that what was read is on disk. For the writer."""
        end = self.load()
        if SCHEMAS_NAME not in self._files.names():
            return
        self._file = self._files.open(SCHEMAS_NAME, write=True)
        if self._file.size() != end:
            logger.warning("torn schema line cut", extra={"through_bytes": end})
            self._file.truncate(end)
        self._file.sync()

    def put(self, schema: TableSchema) -> SchemaId:
        """Keep a version, durable on return, and return its number; one that is kept already keeps its number.

        Raises:
            OSError: The disk refused. Nothing was kept.
            ValueError: Another schema is kept under the same table and version.
        """
        number = self.id_of(schema)
        if number is not None:
            return number
        number = SchemaId(len(self._known) + 1)
        line = _encode(number, schema)
        if self._file is None:
            self._rewrite(line)
        else:
            file, self._file = self._file, None  # after a failure, the next version writes the file again
            try:
                file.write_at(self._end, [line])
                file.sync()
            except OSError:
                file.close()
                raise
            self._file = file
            self._end += len(line)
        self._add(schema)
        return number

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _rewrite(self, line: bytes) -> None:
        """Write a new file with all versions and one more line, and put it in place of the old one."""
        lines = [_encode(number, schema) for number, schema in self._known.items()]
        temporary = f"{SCHEMAS_NAME}.tmp"
        file = self._files.create(temporary)
        try:
            file.write_at(0, [b"".join([*lines, line])])
            file.sync()
            self._files.rename(temporary, SCHEMAS_NAME)
            self._files.sync_names()
        except OSError:
            file.close()
            raise
        self._file = file
        self._end = file.size()

    def _add(self, schema: TableSchema) -> None:
        number = SchemaId(len(self._known) + 1)
        self._known[number] = schema
        self._ids[schema.table, schema.version] = number
        self._latest[schema.table] = number


def numbered(known: Sequence[TableSchema], history: Sequence[TableSchema]) -> list[TableSchema]:
    """Return versions of a table, oldest first, with the numbers that they have after those that are known.

    A source tells its history again each time it is opened, so what it begins with is mostly known. It may count again
    (capture was set up again), and a table may be changed and changed back: so the least that is new is sought, where
    what is known ends with what the history begins with.
    """
    shapes, history_shapes = _shapes(known), _shapes(history)
    for place in range(max(0, len(known) - len(history)), len(known) + 1):
        common = len(known) - place
        if shapes[place:] == history_shapes[:common]:
            break
    last = known[-1].version if known else 0
    fresh = [replace(schema, version=last + number) for number, schema in enumerate(history[common:], 1)]
    return [*known[place:], *fresh]


def _shapes(versions: Sequence[TableSchema]) -> list[TableSchema]:
    return [replace(schema, version=0) for schema in versions]


def _encode(number: SchemaId, schema: TableSchema) -> bytes:
    encoded = msgspec.json.encode(schema)
    return msgspec.json.encode(_Line(number, zlib.crc32(encoded), Raw(encoded))) + b"\n"


def _decode(line: bytes, place: int, number: int) -> TableSchema:
    try:
        decoded = msgspec.json.decode(line, type=_Line)
        if decoded.id == number and zlib.crc32(decoded.schema) == decoded.crc:
            return msgspec.json.decode(decoded.schema, type=TableSchema)
    except msgspec.MsgspecError as error:
        raise CorruptSegmentError(SCHEMAS_NAME, place=place, reason="the line is damaged") from error
    raise CorruptSegmentError(SCHEMAS_NAME, place=place, reason="the line is damaged")
