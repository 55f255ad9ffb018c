"""What a reader of the log looks for, as far as it can be known from a summary of many changes. Pure."""

from collections.abc import Mapping

from msgspec import Struct

from tailrace.model.number import SchemaId
from tailrace.model.op import Op
from tailrace.model.table import TableSchema

__all__ = ["AnyKey", "Conditions", "KeyWanted", "KeyWithin", "OneOfKeys", "Wanted"]

_NUMBER_MIN, _NUMBER_MAX = -(2**63), 2**63 - 1


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
    time_us_min: int = _NUMBER_MIN
    time_us_max: int = _NUMBER_MAX
    """Between which times, both included, it is committed."""

    def __hash__(self) -> int:
        return hash((frozenset(self.schemas.items()), self.ops, self.known, self.time_us_min, self.time_us_max))


class Conditions(Struct, frozen=True):
    """What a reader wants of the tables that it reads; it looks at what it gets again, and may get more."""

    ops: frozenset[Op] = frozenset(Op)
    key: str | None = None
    """Column that is bounded. It counts for versions of a table of which it alone is the key."""

    key_min: int = _NUMBER_MIN
    key_max: int = _NUMBER_MAX
    time_us_min: int = _NUMBER_MIN
    time_us_max: int = _NUMBER_MAX

    def wanted(self, schemas: Mapping[SchemaId, TableSchema], known: int) -> Wanted:
        """Return what to look for among changes of these schema versions; `known` is the number of all there are."""
        keys = {number: self._key_wanted(schema) for number, schema in schemas.items()}
        return Wanted(keys, frozenset(map(int, self.ops)), known, self.time_us_min, self.time_us_max)

    def _key_wanted(self, schema: TableSchema) -> KeyWanted:
        if self.key is None or schema.key != (self.key,):
            return AnyKey()
        if self.key_min == self.key_max:
            return OneOfKeys(frozenset({b"[%d]" % self.key_min}))
        return KeyWithin(self.key_min, self.key_max)
