"""An incremental parser of server-sent events: bytes in, events out. Pure.

The format is that of the HTML standard, chapter "Server-sent events": lines end with LF, CRLF or CR and nothing else,
so the other line separators of Unicode may stand in data; a line is `field: text`, a comment begins with a colon, and a
blank line ends an event. An event without data is not one. The field `retry` is ignored: the pauses between
connections are the client's own.
"""

from msgspec import Struct

from tailrace.client.errors import BadAnswer

__all__ = ["SseEvent", "SseParser"]

_BOM = b"\xef\xbb\xbf"


class SseEvent(Struct, frozen=True):
    """One event. `id` is the newest id that the stream has given, whether with this event or before; empty for none."""

    id: str
    name: str
    data: bytes


class SseParser:
    """Turns the bytes of one connection into events, however they are cut. For one connection only."""

    def __init__(self, last_id: str = "", event_bytes_max: int = 64 << 20) -> None:
        self.last_id = last_id
        """The newest id, also of a block that was no event. Where to go on after a reconnect."""

        self._event_bytes_max = event_bytes_max
        self._begun = False
        self._skip_line_feed = False
        self._partial: list[bytes] = []
        self._partial_bytes = 0
        self._size_bytes = 0
        self._id = last_id
        self._name = ""
        self._data: list[bytes] = []

    def feed(self, piece: bytes) -> list[SseEvent]:
        """Return the events that these bytes complete.

        Raises:
            BadAnswer: An event is larger than `event_bytes_max`.
        """
        events: list[SseEvent] = []
        for line in self._lines(piece):
            if line:
                self._take(line)
            else:
                event = self._dispatch()
                if event is not None:
                    events.append(event)
        if self._size_bytes + self._partial_bytes > self._event_bytes_max:
            raise BadAnswer(f"an event is larger than {self._event_bytes_max} bytes")
        return events

    def _lines(self, piece: bytes) -> list[bytes]:
        """Return the lines that end in these bytes and keep what follows the last of them."""
        if self._skip_line_feed and piece:
            piece = piece.removeprefix(b"\n")
            self._skip_line_feed = False
        if b"\r" in piece:
            self._skip_line_feed = piece.endswith(b"\r")
            piece = piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        if b"\n" not in piece:
            self._partial.append(piece)
            self._partial_bytes += len(piece)
            return []
        first, *lines = piece.split(b"\n")
        lines.insert(0, b"".join([*self._partial, first]))
        self._partial = [lines.pop()]
        self._partial_bytes = len(self._partial[0])
        if not self._begun:
            self._begun = True
            lines[0] = lines[0].removeprefix(_BOM)
        return lines

    def _take(self, line: bytes) -> None:
        """Note one field."""
        self._size_bytes += len(line)
        field, _, text = line.partition(b":")
        text = text.removeprefix(b" ")
        match field:
            case b"data":
                self._data.append(text)
            case b"event":
                self._name = text.decode("utf-8", "replace")
            case b"id" if b"\0" not in text:
                self._id = text.decode("utf-8", "replace")
            case _:
                pass

    def _dispatch(self) -> SseEvent | None:
        """End a block; return its event if it has data."""
        self.last_id = self._id
        name, data = self._name or "message", self._data
        self._name, self._data = "", []
        self._size_bytes = 0
        return SseEvent(self._id, name, b"\n".join(data)) if data else None
