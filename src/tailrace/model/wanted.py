"""What a reader of the log looks for, as far as it can be known from a summary of many changes. Pure."""

from collections.abc import Mapping

from msgspec import Struct

from tailrace.model.number import SchemaId

__all__ = ["AnyKey", "KeyWanted", "KeyWithin", "OneOfKeys", "Wanted"]


class AnyKey(Struct, frozen=True):
    """Changes of any key."""


class OneOfKeys(Struct, frozen=True):
    """Changes of these keys, as the log writes them."""

    keys: frozenset[bytes]


class KeyWithin(Struct, frozen=True):
    """Changes whose key is one integer between two others, both included."""

    lower: int
    upper: int


KeyWanted = AnyKey | OneOfKeys | KeyWithin


class Wanted(Struct, frozen=True):
    """What changes must have in common with it to be for a reader: one of these schema versions with such a key.

    All that the reader wants is wanted here, and perhaps more. Schema versions with a number above `known` came later
    than this was made: nothing is said of them, so they are wanted.
    """

    schemas: Mapping[SchemaId, KeyWanted]
    ops: frozenset[int]
    known: int

    @property
    def by_keys(self) -> bool:
        """Tell whether single keys are wanted, so that more than the bounds of keys must be known."""
        return any(isinstance(key, OneOfKeys) for key in self.schemas.values())

    def __hash__(self) -> int:
        return hash((frozenset(self.schemas.items()), self.ops, self.known))
