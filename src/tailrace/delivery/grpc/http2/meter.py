"""Bounding the frames that a client sends, before anything looks into them. Pure."""

from enum import IntEnum

__all__ = ["FrameMeter", "FrameRefusedError", "FrameType"]

_PREFACE_BYTES = 24
_HEADER_BYTES = 9


class FrameType(IntEnum):
    """Kinds of frames (RFC 9113, 6)."""

    DATA = 0
    HEADERS = 1
    PRIORITY = 2
    RST_STREAM = 3
    SETTINGS = 4
    PUSH_PROMISE = 5
    PING = 6
    GOAWAY = 7
    WINDOW_UPDATE = 8
    CONTINUATION = 9
    OTHER = 10
    """Any that HTTP/2 does not name, and DATA that carries nothing."""


class FrameRefusedError(Exception):
    """A frame is too large, or there are too many of its kind. The connection ends."""


_LIMITS: dict[int, tuple[int, float]] = {
    FrameType.PRIORITY: (4_000, 400.0),
    FrameType.RST_STREAM: (4_000, 400.0),
    FrameType.SETTINGS: (100, 1.0),
    FrameType.PING: (300, 5.0),
    FrameType.GOAWAY: (10, 0.1),
    FrameType.WINDOW_UPDATE: (20_000, 2_000.0),
    FrameType.CONTINUATION: (200, 20.0),
    FrameType.OTHER: (1_000, 10.0),
}
"""How many frames of a kind may come at once, and how many more a second.

HEADERS and DATA are bounded by streams and windows. What we send is answered by pings (clients measure the line) and by
window updates, so sending gives those two back.
"""

_TOO_MANY = "too_many_{}s"
"""The message about too many frames: clients of gRPC know `too_many_pings` and ping less."""

_GIVEN_BACK = {FrameType.PING: 1, FrameType.WINDOW_UPDATE: 4}
"""Frames of a kind that each frame of data sent gives back."""


class FrameMeter:
    """Watches the frames of one connection go by: their size, how many of a kind, and how many in one turn."""

    def __init__(self, size_max: int, frames_a_turn: int) -> None:
        self._size_max = size_max
        self._frames_a_turn = frames_a_turn
        self._skip = _PREFACE_BYTES
        self._header = b""
        self._left = {kind: float(burst) for kind, (burst, _) in _LIMITS.items()}
        self._time_s = 0.0

    def measure(self, data: bytes | memoryview, time_s: float) -> int:
        """Return how many of the bytes may be read in this turn; call again with the rest in the next one.

        Raises:
            FrameRefusedError: End the connection.
        """
        self._refill(time_s)
        begin, frames = 0, 0
        while True:
            if self._skip:
                step = min(self._skip, len(data) - begin)
                self._skip -= step
                begin += step
            if begin == len(data):
                return begin
            if not self._header and frames == self._frames_a_turn:
                return begin
            wanted = _HEADER_BYTES - len(self._header)
            self._header += data[begin : begin + wanted]
            begin = min(begin + wanted, len(data))
            if len(self._header) < _HEADER_BYTES:
                return begin
            self._count(self._header)
            self._header = b""
            frames += 1

    def sent(self, frames: int) -> None:
        """Take note that frames of data were sent."""
        for kind, count in _GIVEN_BACK.items():
            self._left[kind] = min(self._left[kind] + count * frames, _LIMITS[kind][0])

    def _count(self, header: bytes) -> None:
        size, kind = int.from_bytes(header[:3], "big"), header[3]
        if size > self._size_max:
            raise FrameRefusedError(f"a frame of {size} bytes exceeds the limit of {self._size_max}")
        self._skip = size
        if kind > FrameType.OTHER or (kind == FrameType.DATA and not size and not header[4] & 1):
            kind = FrameType.OTHER
        if kind in self._left:
            self._left[kind] -= 1
            if self._left[kind] < 0:
                raise FrameRefusedError(_TOO_MANY.format(FrameType(kind).name.lower()))

    def _refill(self, time_s: float) -> None:
        passed_s = time_s - self._time_s
        if passed_s < 1.0:
            return
        self._time_s = time_s
        for kind, (burst, per_s) in _LIMITS.items():
            self._left[kind] = min(self._left[kind] + per_s * passed_s, burst)
