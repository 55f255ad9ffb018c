"""The frames of a segment as batches, checked. Pure."""

import struct

import pyarrow as pa

from tailrace.log.batch import conform, with_hlc
from tailrace.log.frame import FRAME_HEADER_BYTES, BadFrameError, walk
from tailrace.log.pick import Batches
from tailrace.log.segment import Segment
from tailrace.log.single import SingleFrames
from tailrace.model.chunk import ENVELOPE
from tailrace.model.errors import CorruptSegmentError

__all__ = ["decode"]

_SINGLE_BYTES_MAX = 512 * 1024
"""Most bytes of frames of one change that become one batch."""


def decode(data: bytes | memoryview, place: int, segment: Segment) -> Batches:
    """Return the batches of the frames in `data`, which begins at `place` of the segment, each with its size.

    All checksums are checked. Neighbouring frames of one change come as one batch.

    Raises:
        CorruptSegmentError: It holds anything but whole good frames.
    """
    buffer = pa.py_buffer(data)
    batches: Batches = []
    single, whole = SingleFrames(), b""
    single_bytes = 0
    fast = segment.schema.equals(ENVELOPE)
    try:
        for at, header in walk(data, place):
            begin, size = at + FRAME_HEADER_BYTES, header.payload_bytes
            if fast and header.change_count == 1 and not whole:
                whole = bytes(data)
            if fast and header.change_count == 1 and single.add(whole, begin, size):
                single_bytes += size
                if single_bytes >= _SINGLE_BYTES_MAX:
                    batches.append((single.taken(), single_bytes))
                    single_bytes = 0
                continue
            if single_bytes:
                batches.append((single.taken(), single_bytes))
                single_bytes = 0
            batch = conform(pa.ipc.read_record_batch(buffer.slice(begin, size), segment.schema))
            if fast and header.change_count == 1:
                single.learn(whole, begin, size, batch)
            batches.append((with_hlc(batch, header.append_time_us), size))
        if single_bytes:
            batches.append((single.taken(), single_bytes))
    except BadFrameError as error:
        raise CorruptSegmentError(segment.name, place=error.place, reason=error.reason) from error
    except (pa.ArrowException, struct.error, ValueError, IndexError) as error:
        raise CorruptSegmentError(segment.name, place=place, reason="a frame is no Arrow record batch") from error
    return batches
