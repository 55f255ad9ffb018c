"""Frames: messages of a replication stream with all their bytes, one behind the other, as they come from the network.

    d   int32 length, itself included   payload

A payload is one of those in `replication_message`; most hold a message of pgoutput. Whoever takes many frames takes
them as one piece of memory, so that the compiled helper can go through it without an object for each.
"""

from collections.abc import Iterable
from struct import Struct as Layout
from typing import TypeAlias

from tailrace.compiled import find_compiled
from tailrace.source.postgres.replication_message import DATA_BEGIN
from tailrace.source.postgres.type_info import WAYS

__all__ = [
    "DATA",
    "HEAD_BYTES",
    "Frames",
    "compiled",
    "frame_bytes",
    "pack_data",
    "pack_frames",
    "payload_at",
    "whole_end",
]

Frames: TypeAlias = bytes | memoryview
"""Whole frames, one behind the other."""

compiled = find_compiled("tailrace.source.postgres._rows", " ".join(WAYS))
"""The compiled helper; None where it was not built or is switched off."""

HEAD_BYTES = 5
DATA = ord("d")
_HEAD = Layout(">cI")
_SIZE = Layout(">I").unpack_from
_EMPTY_DATA = b"w".ljust(DATA_BEGIN, b"\0")


def frame_bytes(data: "Frames | bytearray", at: int) -> int:
    """Return how long a frame is, whose head begins at a place."""
    return 1 + int(_SIZE(data, at + 1)[0])


def whole_end(data: "Frames | bytearray", begin: int, end: int) -> int:
    """Return the place behind the last frame that is whole, where frames begin at a place.

    It stops before a message of another type, of which there are few.
    """
    if compiled is not None:
        return int(compiled.whole(data, begin, end))
    while end - begin >= HEAD_BYTES and data[begin] == DATA:
        next_begin = begin + frame_bytes(data, begin)
        if next_begin > end or next_begin < begin + HEAD_BYTES:
            break
        begin = next_begin
    return begin


def payload_at(frames: Frames, at: int) -> tuple[bytes, int]:
    """Return the payload of a frame, and the place behind it."""
    end = at + frame_bytes(frames, at)
    return bytes(frames[at + HEAD_BYTES : end]), end


def pack_frames(payloads: Iterable[bytes]) -> bytes:
    """Return frames with these payloads."""
    return b"".join([part for payload in payloads for part in (_HEAD.pack(b"d", 4 + len(payload)), payload)])


def pack_data(message: bytes) -> bytes:
    """Return a frame with a message of pgoutput; where in the log it belongs is not said."""
    return b"%b%b%b" % (_HEAD.pack(b"d", 4 + DATA_BEGIN + len(message)), _EMPTY_DATA, message)
