"""The HTTP/1.1 protocol of a connection: uvicorn's, with a bound on the head of a request."""

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

__all__ = ["BoundedProtocol"]

_HEAD_BYTES_MAX = 64 << 10
"""Most bytes of a request line and its headers."""


class BoundedProtocol(HttpToolsProtocol):
    """Refuses a request whose head does not end; the parser itself would take it in for ever."""

    _head_bytes = 0
    _in_head = True

    def data_received(self, data: bytes) -> None:
        """Take what came from the socket."""
        super().data_received(data)
        if self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > _HEAD_BYTES_MAX and not self.transport.is_closing():
                self.send_400_response("The head of the request is too large.")

    def on_message_begin(self) -> None:
        """Begin with the head of a request."""
        super().on_message_begin()
        self._head_bytes = 0
        self._in_head = True

    def on_headers_complete(self) -> None:
        """Go on with its body."""
        self._in_head = False
        super().on_headers_complete()
