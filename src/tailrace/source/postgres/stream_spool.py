"""Changes of transactions that are sent before they are committed, kept until it is known how they end.

Few changes are kept in memory, more of them in a temporary file without a name: it vanishes with the process. Nothing
is lost with it, because the server sends a transaction again that was not confirmed.
"""

import tempfile
from collections.abc import Iterator
from struct import Struct as Layout

from tailrace.model.errors import SourceUnavailableError
from tailrace.source.postgres.frame import Frames, frame_bytes, whole_end

__all__ = ["StreamSpool"]

_XID = Layout(">I").unpack_from
_DESCRIPTIONS = b"RY"
_MEMORY_BYTES = 1 << 20
"""Up to so much of a transaction is kept in memory."""

_BLOCK_BYTES = 1 << 20


class StreamSpool:
    """The messages of one transaction as frames, in order; each message has the number of its subtransaction."""

    def __init__(self, directory: str | None) -> None:
        """Keep files in a directory; that for temporary files where it is None."""
        self._file = tempfile.SpooledTemporaryFile(max_size=_MEMORY_BYTES, dir=directory)  # noqa: SIM115
        self.aborted: set[int] = set()
        """Subtransactions that were rolled back: what they did is not to be read."""

        self.relations: dict[int, int] = {}
        """Of each relation, when its last message came: see `Transactions`."""

    def add(self, frames: Frames) -> None:
        """Keep messages.

        Raises:
            SourceUnavailableError: The disk refuses.
        """
        try:
            self._file.write(frames)
        except OSError as error:
            raise SourceUnavailableError(
                f"a large transaction could not be kept in a temporary file ({error}): free space there, or name "
                "another place with the option spool_directory"
            ) from error

    def skips(self, message: bytes) -> bool:
        """Tell whether a message is not to be read, because its subtransaction was rolled back.

        What describes tables and types is read in any case: the server does not send it again for the rest of the
        transaction.
        """
        return message[0] not in _DESCRIPTIONS and _XID(message, 1)[0] in self.aborted

    def blocks(self) -> Iterator[bytes]:
        """Yield all frames in order, many at once."""
        self._file.seek(0)
        rest = b""
        while block := self._file.read(max(_BLOCK_BYTES, frame_bytes(rest, 0) if len(rest) > 4 else 0)):
            block = rest + block
            end = whole_end(block, 0, len(block))
            if end:
                yield block[:end]
            rest = block[end:]

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()
