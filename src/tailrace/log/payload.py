"""The payload of a frame: drafts to the bytes of one Arrow message, and the batch that shows them. Pure.

Two ways lead to the same bytes. `tailrace.log.batch` builds arrays with Arrow and has them serialized; it is always
there. The compiled helper writes the message itself, in one pass, and lets other threads run while it copies; it is
there where a compiler was when Tailrace was installed. See docs/decisions/compiled-helper.md.
"""

import struct
from collections.abc import Sequence
from functools import cache, partial

import pyarrow as pa
from msgspec import Struct
from msgspec.structs import astuple

from tailrace.compiled import find_compiled
from tailrace.log import batch
from tailrace.model.chunk import ENVELOPE
from tailrace.model.commit import Draft
from tailrace.model.number import Index, Offset

__all__ = ["compiled", "encode_payload", "find_head", "layout", "measure", "message_head"]


def layout() -> str:
    """Return the fields of a draft and the columns of the log. One compiled from others is older than we are."""
    return f"{' '.join(Draft.__struct_fields__)}: {' '.join(ENVELOPE.names)}"


compiled = find_compiled("tailrace.log._payload", layout())
"""The compiled helper; None where it was not built or is switched off."""


_allocate = partial(pa.allocate_buffer, memory_pool=pa.system_memory_pool())
"""Frames are large and live shortly: Arrow's own pool would keep some 60 MB of such memory for itself."""


def measure(drafts: Sequence[Draft], schema_count: int) -> tuple[int, int]:
    """Return how many changes the drafts have, and about how many bytes they take in a frame.

    Raises:
        ValueError: They are such as only a bug can make; see `tailrace.log.batch.measure`.
    """
    found = None if compiled is None else compiled.measure(list(map(astuple, drafts)), schema_count)
    return batch.measure(drafts, schema_count) if found is None else found


def encode_payload(
    drafts: Sequence[Draft], first_offset: Offset, first_index: Index, first_hlc: int = 1
) -> tuple[pa.RecordBatch, memoryview]:
    """Return the batch of whole commits, or of one part of a commit, with these numbers, and its bytes.

    What the compiled helper made is held once: the batch shows the bytes.
    """
    if compiled is not None:
        head = message_head()
        rows = list(map(astuple, drafts))
        made = compiled.encode(rows, first_offset, first_index, first_hlc, head.data, head.places, _allocate)
        if made is not None:
            return pa.ipc.read_record_batch(made, ENVELOPE), memoryview(made)
    encoded = batch.encode_drafts(drafts, first_offset, first_index, first_hlc)
    return encoded, memoryview(encoded.serialize())


class Head(Struct, frozen=True):
    """What a message of ours begins with, up to its body, and where in it is what differs from message to message.

    `places` are those of the body's length, of the number of rows, of the first column's rows and nulls, and of the
    first buffer's place and size; each is a 64-bit integer, columns and buffers follow each other.
    """

    data: bytes
    places: tuple[int, int, int, int]


@cache
def message_head() -> Head:
    """Return the head of a frame's message, from Arrow itself: as the installed version writes it."""
    sample = pa.RecordBatch.from_arrays([pa.nulls(1, field.type) for field in ENVELOPE], schema=ENVELOPE)
    return find_head(bytes(sample.serialize()))


def find_head(message: bytes) -> Head:
    """Return the head of an Arrow message with a record batch (Message.fbs; flatbuffers: tables, fields by number)."""
    begin = _PREFIX.size
    end = begin + _PREFIX.unpack_from(message)[1]
    table = begin + _uint32(message, begin)
    body_length, header = _field(message, table, 3), _field(message, table, 2)
    batch_table = header + _uint32(message, header)
    rows, nodes, buffers = (_field(message, batch_table, number) for number in (0, 1, 2))
    columns = nodes + _uint32(message, nodes) + _COUNT_BYTES
    first_buffer = buffers + _uint32(message, buffers) + _COUNT_BYTES
    return Head(message[:end], (body_length, rows, columns, first_buffer))


_PREFIX = struct.Struct("<II")
"""A mark, and the length of the metadata behind it."""

_COUNT_BYTES = 4
"""A vector begins with how many it has."""


def _field(message: bytes, table: int, number: int) -> int:
    """Return the place of a field of a flatbuffer's table. Those that we read are always there."""
    (back,) = struct.unpack_from("<i", message, table)
    (forth,) = struct.unpack_from("<H", message, table - back + 4 + 2 * number)
    assert forth
    return table + int(forth)


def _uint32(message: bytes, place: int) -> int:
    (number,) = struct.unpack_from("<I", message, place)
    return int(number)
