"""Cutting the bytes of a request into gRPC messages. Pure."""

import zlib

from tailrace.delivery.grpc.call import StatusCode, StatusError

__all__ = ["ENCODINGS", "MessageReader"]

ENCODINGS = ("identity", "gzip")
"""How messages of requests may be compressed. Answers never are."""

_PREFIX_BYTES = 5
"""One byte that tells whether the message is compressed, four for its length."""

_GZIP_WINDOW_BITS = 31


class MessageReader:
    """Cuts the bytes of a request into messages, however they were split on their way.

    Holds at most one incomplete message, of at most `size_max` bytes, both as sent and as it is when decompressed.
    """

    def __init__(self, size_max: int, encoding: str = "identity") -> None:
        self._size_max = size_max
        self._encoding = encoding
        self._buffer = bytearray()

    @property
    def held_bytes(self) -> int:
        """How many bytes of an incomplete message are held."""
        return len(self._buffer)

    def feed(self, data: bytes) -> list[bytes]:
        """Take more bytes; return the messages that they complete, in order.

        Raises:
            StatusError: A message is too large, or compressed in a way that was not agreed on. Feed no more then.
        """
        buffer = self._buffer
        buffer += data
        messages = []
        begin = 0
        while len(buffer) - begin >= _PREFIX_BYTES:
            flag, size = buffer[begin], int.from_bytes(buffer[begin + 1 : begin + _PREFIX_BYTES], "big")
            self._check(flag, size)
            end = begin + _PREFIX_BYTES + size
            if len(buffer) < end:
                break
            message = bytes(memoryview(buffer)[begin + _PREFIX_BYTES : end])
            messages.append(self._decompressed(message) if flag else message)
            begin = end
        del buffer[:begin]
        return messages

    def _check(self, flag: int, size: int) -> None:
        if size > self._size_max:
            raise self._too_large()
        if flag > 1 or (flag and self._encoding == "identity"):
            raise StatusError(StatusCode.INTERNAL, "a message is marked as compressed, but no grpc-encoding says how")

    def _decompressed(self, message: bytes) -> bytes:
        decompressor = zlib.decompressobj(_GZIP_WINDOW_BITS)
        try:
            whole = decompressor.decompress(message, self._size_max + 1)
        except zlib.error:
            raise StatusError(StatusCode.INTERNAL, "a message cannot be decompressed") from None
        if len(whole) > self._size_max:
            raise self._too_large()
        if not decompressor.eof:
            raise StatusError(StatusCode.INTERNAL, "a message cannot be decompressed")
        return whole

    def _too_large(self) -> StatusError:
        return StatusError(StatusCode.RESOURCE_EXHAUSTED, f"a message exceeds the limit of {self._size_max} bytes")
