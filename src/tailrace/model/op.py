"""What a change did."""

from enum import IntEnum

__all__ = ["Op"]


class Op(IntEnum):
    """Kind of a change. The numbers are written to disk: they never change."""

    INSERT = 1
    UPDATE = 2
    DELETE = 3
    SCHEMA = 4

    @property
    def word(self) -> str:
        """Return the lower-case word that the wires and the command line use."""
        return self.name.lower()
