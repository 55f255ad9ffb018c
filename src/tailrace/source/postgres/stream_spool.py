"""Changes of transactions that are sent before they are committed, kept until it is known how they end.

Few changes are kept in memory, more of them in a temporary file without a name: it vanishes with the process. Nothing
is lost with it, because the server sends a transaction again that was not confirmed.
"""

import tempfile
from collections.abc import Iterator
from struct import Struct as Layout

from tailrace.model.errors import SourceUnavailableError

__all__ = ["StreamSpool"]

_HEADER = Layout(">II")
_DESCRIPTIONS = b"RY"
_MEMORY_BYTES = 1 << 20
"""Up to so much of a transaction is kept in memory."""


class StreamSpool:
    """The messages of one transaction, in order, each with the number of its subtransaction."""

    def __init__(self, directory: str | None) -> None:
        """Keep files in a directory; that for temporary files where it is None."""
        self._file = tempfile.SpooledTemporaryFile(max_size=_MEMORY_BYTES, dir=directory)  # noqa: SIM115
        self._aborted: set[int] = set()
        self.relations: dict[int, int] = {}
        """Of each relation, when its last message came: see `Transactions`."""

    def add(self, subxid: int, message: bytes) -> None:
        """Keep a message.

        Raises:
            SourceUnavailableError: The disk refuses.
        """
        try:
            self._file.write(_HEADER.pack(subxid, len(message)))
            self._file.write(message)
        except OSError as error:
            raise SourceUnavailableError(
                f"a large transaction could not be kept in a temporary file ({error}): free space there, or name "
                "another place with the option spool_directory"
            ) from error

    def abort(self, subxid: int) -> None:
        """Forget what a subtransaction did: it was rolled back."""
        self._aborted.add(subxid)

    def messages(self) -> Iterator[bytes]:
        """Yield the messages of all that was not rolled back, in order.

        What describes tables and types is yielded in any case: the server does not send it again for the rest of the
        transaction.
        """
        self._file.seek(0)
        while header := self._file.read(_HEADER.size):
            subxid, size = _HEADER.unpack(header)
            message = self._file.read(size)
            if subxid not in self._aborted or message[0] in _DESCRIPTIONS:
                yield message

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()
