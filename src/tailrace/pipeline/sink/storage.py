"""The seam to where sinks keep files of their own: a directory of this machine, or a prefix of a bucket.

Both keep two promises that the sinks build on: a small file is replaced only by who has read it as it is, and a group
of files is there wholly or not at all.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from msgspec import Struct

__all__ = ["MANIFEST", "Group", "Held", "NewFile", "Storage"]

MANIFEST = "_manifest.json"
"""Name of the file that says what a group holds."""


class Held(Struct, frozen=True):
    """A small file as it was read."""

    data: bytes
    version: str = ""
    """Which writing of the file it is, where the storage tells."""

    written_ns: int = 0
    """When it was written, by the clock of the file system; 0 where nobody needs it."""


class NewFile(Protocol):
    """A file that is being written. Others see it when it is kept; one that is not is removed, now or later."""

    @property
    def path(self) -> Path:
        """Return where on this machine it is to be written."""

    def keep(self, *, durable: bool = True) -> None:
        """Put it in its place. One that need not survive a crash may be kept sooner."""


class Group(Protocol):
    """Files that appear together, with their manifest."""

    def add(self, stem: str, suffix: str) -> tuple[str, Path]:
        """Return the name of a further file in the group, and where on this machine it is to be written."""

    def commit(self, manifest: bytes) -> bool:
        """Let all files appear, durably. Return False, and leave all as it is, where another's group is there.

        Where an earlier try of this very group took effect, though its answer was lost, that counts as this one's.
        """


class Storage(Protocol):
    """Files below one place, by names with slashes. Picklable. What a method wrote is durable when it returns.

    Methods raise what `errors` makes a `SinkError` of.
    """

    def errors(self) -> AbstractContextManager[None]:
        """Raise what the storage says as an error of the sink, within a `with` block.

        Raises:
            SinkUnavailableError: It cannot be reached or does not answer: worth another try.
            SinkRefusedError: It is not there, or refuses us: someone has to do what the message says.
        """

    def open(self) -> None:
        """Make the place, or look whether it can be used."""

    def below(self, path: str) -> "Storage":
        """Return the storage of a place below this one."""

    def read(self, name: str) -> Held | None:
        """Return a small file; None where it is not there."""

    def replace(self, name: str, data: bytes, held: Held | None) -> bool:
        """Put a small file in the place of what was read as `held`, None for nothing.

        Return False, and leave all as it is, where it has changed since.
        """

    def create(self, name: str) -> NewFile:
        """Begin a file of a name that nobody else has."""

    def fetched(self, name: str) -> AbstractContextManager[Path]:
        """Give a file as one of this machine, within a `with` block."""

    def names(self, folder: str) -> Iterator[str]:
        """Return the names of all files below a folder, in no order."""

    def remove(self, names: Sequence[str]) -> None:
        """Remove files that may be gone already."""

    def group(self, folder: str, name: str) -> AbstractContextManager[Group]:
        """Begin a group in a folder. What is not committed within the `with` block is removed, now or later."""

    def groups(self, folder: str) -> list[str]:
        """Return the names of the groups in a folder that are whole, in order."""

    def tidy(self, folder: str, abandoned: bytes) -> None:
        """Remove what interrupted groups in a folder have left. Only for who writes there.

        A group that nobody finished, and that others follow, gets the manifest `abandoned`: then nobody will.
        """
