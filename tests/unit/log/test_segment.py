import pyarrow as pa
import pytest

from tailrace.log.segment import (
    PARTS_VERSION,
    PLAIN_VERSION,
    index_name,
    pack_segment_header,
    read_segment_header,
    segment_index,
    segment_name,
)
from tailrace.model.chunk import ENVELOPE
from tailrace.model.errors import CorruptSegmentError, FormatVersionError
from tailrace.model.number import Index, Offset
from tailrace.testing.files import MemoryFiles

NAME = "oplog-00000000000000000007.bin"
NUMBERS = {"first_offset": Offset(40), "first_index": Index(7), "previous_index": Index(3), "created_us": 123}


def packed(schema: pa.Schema = ENVELOPE) -> bytes:
    return pack_segment_header(**NUMBERS, schema=schema)


def read(data: bytes, name: str = NAME):
    files = MemoryFiles()
    files.put(name, data)
    return read_segment_header(files.open(name), name)


def test_a_name_has_twenty_digits_and_tells_the_first_index():
    assert segment_name(Index(7)) == NAME
    assert segment_index(NAME) == 7
    assert index_name(Index(7)) == "oplog-00000000000000000007.idx"


@pytest.mark.parametrize("name", ["oplog-7.bin", "oplog-00000000000000000007.idx", "state", NAME + ".tmp"])
def test_other_files_are_no_segments(name):
    assert segment_index(name) is None


def test_a_header_reads_back_as_it_was_packed():
    segment = read(packed() + b"frames follow")
    assert {name: getattr(segment, name) for name in NUMBERS} == NUMBERS
    assert segment.schema == ENVELOPE
    assert segment.name == NAME
    assert segment.header_bytes == len(packed())
    assert segment.header_bytes % 8 == 0


def test_the_schema_of_an_older_version_is_kept():
    older = pa.schema([field for field in ENVELOPE if field.name != "before"])
    assert read(packed(older)).schema == older


def test_every_flipped_bit_and_every_cut_is_noticed():
    data = packed()
    for bit in range(len(data) * 8):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptSegmentError) as caught:
            read(bytes(damaged))
        assert (caught.value.segment, caught.value.place) == (NAME, 0)
    for size in range(len(data)):
        with pytest.raises(CorruptSegmentError):
            read(data[:size])


def test_a_header_under_another_name_is_refused():
    with pytest.raises(CorruptSegmentError, match="begins with commit 7"):
        read(packed(), segment_name(Index(8)))


@pytest.mark.parametrize("version", [PLAIN_VERSION, PARTS_VERSION])
def test_the_version_is_read_back(version):
    assert read(pack_segment_header(**NUMBERS, schema=ENVELOPE, version=version)).version == version


@pytest.mark.parametrize("version", [0, 3, 4_000_000_000])
def test_a_format_version_that_is_not_known_is_named(version):
    with pytest.raises(FormatVersionError) as caught:
        read(pack_segment_header(**NUMBERS, schema=ENVELOPE, version=version))
    assert (caught.value.version, caught.value.known) == (version, 2)
