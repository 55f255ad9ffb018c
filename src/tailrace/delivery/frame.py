"""Unmasked WebSocket text frames, as a server sends them (RFC 6455, chapter 5.2). Pure.

```
0x81, length                                   up to 125 bytes of text
0x81, 126, length in two bytes                 up to 65 535
0x81, 127, length in eight bytes               above that
```
"""

from collections.abc import Iterator
from functools import cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["frame_array", "frame_of", "payloads"]

_TEXT = 0x81
"""First byte: the last (and only) fragment of a text message."""

_SHORT_MAX = 125
_MIDDLE_MAX = 0xFFFF
_MIDDLE, _LONG = 126, 127


def frame_of(text: bytes) -> bytes:
    """Return one message as a frame."""
    return _head(len(text)) + text


def frame_array(texts: Any) -> Any:
    """Return an Arrow array of messages as an array of frames."""
    lengths = pc.binary_length(texts)
    if (pc.max(lengths).as_py() or 0) > _MIDDLE_MAX:
        heads = pa.array([_head(length) for length in lengths.to_pylist()], texts.type)
    else:
        heads = _heads().take(lengths)
    return pc.binary_join_element_wise(heads, texts, pa.scalar(b"", texts.type))


def payloads(frames: bytes) -> Iterator[bytes]:
    """Yield the messages of frames that were made here."""
    place, end = 0, len(frames)
    while place < end:
        length = frames[place + 1]
        place += 2
        if length > _SHORT_MAX:
            width = 2 if length == _MIDDLE else 8
            length = int.from_bytes(frames[place : place + width], "big")
            place += width
        yield frames[place : place + length]
        place += length


def _head(length: int) -> bytes:
    if length <= _SHORT_MAX:
        return bytes((_TEXT, length))
    if length <= _MIDDLE_MAX:
        return bytes((_TEXT, _MIDDLE)) + length.to_bytes(2, "big")
    return bytes((_TEXT, _LONG)) + length.to_bytes(8, "big")


@cache
def _heads() -> Any:
    """Return the heads of all lengths that are not long, by length."""
    return pa.array([_head(length) for length in range(_MIDDLE_MAX + 1)], pa.binary())
