"""Segments: their names and the header that each begins with. Pure, but for reading a header.

0      8        12   16            20            24            32           40              48          56
magic  version  crc  header bytes  schema bytes  first offset  first index  previous index  created µs  schema …

Behind the schema of a compacted segment, at a multiple of 8: `TRCOMPCT`.
"""

import re
import struct
import zlib

import pyarrow as pa
from msgspec import Struct

from tailrace.log.files import File
from tailrace.model.errors import CorruptSegmentError, FormatVersionError
from tailrace.model.number import Index, Offset

__all__ = [
    "PARTS_VERSION",
    "PLAIN_VERSION",
    "Segment",
    "index_name",
    "pack_segment_header",
    "read_identity",
    "read_segment_header",
    "segment_index",
    "segment_name",
    "statistics_name",
]

PLAIN_VERSION = 1
PARTS_VERSION = 2
"""A segment that may hold commits in parts. Only those are of this version: an older program refuses them, which would
show the parts of an unfinished commit, and reads all others."""

_MAGIC = b"TRSEGMNT"
_COMPACTED = b"TRCOMPCT"
_LAYOUT = struct.Struct("<8sIIIIQQQQ")
_CRC_PLACE = 12
_HEADER_BYTES_MAX = 1024 * 1024
_NAME = re.compile(r"oplog-(\d{20})\.bin")


class Segment(Struct, frozen=True, kw_only=True):
    """What the header of a segment says, and where its frames begin.

    `identity` is the header's checksum. A compacted segment has the name of the one that it replaces and another
    identity: what is known of the frames of one must not be used for the other.
    """

    first_offset: Offset
    first_index: Index
    previous_index: Index
    created_us: int
    header_bytes: int
    schema: pa.Schema
    version: int = PLAIN_VERSION
    compacted: bool = False
    identity: int = 0

    @property
    def name(self) -> str:
        """Return the name of its file."""
        return segment_name(self.first_index)


def segment_name(first_index: Index) -> str:
    """Return the file name of the segment that begins with this commit."""
    return f"oplog-{first_index:020d}.bin"


def index_name(first_index: Index) -> str:
    """Return the file name of that segment's sparse index."""
    return f"oplog-{first_index:020d}.idx"


def statistics_name(first_index: Index) -> str:
    """Return the file name of that segment's statistics."""
    return f"oplog-{first_index:020d}.sta"


def segment_index(name: str) -> Index | None:
    """Return the first index of the segment of that file name; None for other files."""
    match = _NAME.fullmatch(name)
    return Index(int(match[1])) if match else None


def pack_segment_header(
    *,
    first_offset: Offset,
    first_index: Index,
    previous_index: Index,
    created_us: int,
    schema: pa.Schema,
    version: int = PLAIN_VERSION,
    compacted: bool = False,
) -> bytes:
    """Return the bytes that a new segment begins with."""
    encoded = schema.serialize().to_pybytes()
    schema_bytes = len(encoded)
    if compacted:  # older programs pass over what follows the schema
        encoded = encoded.ljust(_aligned(schema_bytes), b"\0") + _COMPACTED
    size = _aligned(_LAYOUT.size + len(encoded))
    fields = (size, schema_bytes, first_offset, first_index, previous_index, created_us)
    unsigned: bytes = (_LAYOUT.pack(_MAGIC, version, 0, *fields) + encoded).ljust(size, b"\0")
    return unsigned[:_CRC_PLACE] + zlib.crc32(unsigned).to_bytes(4, "little") + unsigned[_CRC_PLACE + 4 :]


def _aligned(size: int) -> int:
    return (size + 7) // 8 * 8


def read_identity(file: File) -> int:
    """Return the identity of an open segment without checking its header; 0 where it has none."""
    return int.from_bytes(file.read_at(_CRC_PLACE, 4), "little")


def read_segment_header(file: File, name: str) -> Segment:
    """Return the header of an open segment.

    Raises:
        CorruptSegmentError: It is damaged, or does not fit the file's name.
        FormatVersionError: A newer version wrote it.
    """
    fixed = file.read_at(0, _LAYOUT.size)
    if len(fixed) < _LAYOUT.size:
        raise CorruptSegmentError(name, place=0, reason="the header is cut short")
    magic, version, crc, size, schema_bytes, offset, index, previous, created_us = _LAYOUT.unpack(fixed)
    if magic != _MAGIC:
        raise CorruptSegmentError(name, place=0, reason="this is no segment")
    header = file.read_at(0, size) if _LAYOUT.size <= size <= _HEADER_BYTES_MAX else b""
    if zlib.crc32(header[:_CRC_PLACE] + bytes(4) + header[_CRC_PLACE + 4 :]) != crc or len(header) != size:
        raise CorruptSegmentError(name, place=0, reason="the header does not match its checksum")
    if not PLAIN_VERSION <= version <= PARTS_VERSION:
        raise FormatVersionError(name, version=version, known=PARTS_VERSION)
    if segment_name(index) != name:
        raise CorruptSegmentError(name, place=0, reason=f"the header says it begins with commit {index}")
    schema = pa.ipc.read_schema(pa.py_buffer(header[_LAYOUT.size : _LAYOUT.size + schema_bytes]))
    return Segment(
        first_offset=offset,
        first_index=index,
        previous_index=previous,
        created_us=created_us,
        header_bytes=size,
        schema=schema,
        version=version,
        compacted=header[_LAYOUT.size + _aligned(schema_bytes) :][: len(_COMPACTED)] == _COMPACTED,
        identity=crc,
    )
