"""Filters by key: one exact key, or inclusive bounds. Pure.

Schema changes and truncations are of no one row; they pass. Keys are compared as values of their own types: a key whose
value cannot be compared with a bound, text with a number, is not within it.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.model.errors import InvalidRequestError, InvalidValueError
from tailrace.model.image import NO_KEY, decode_key
from tailrace.model.key import key_bytes, order_of, order_of_key
from tailrace.model.table import Kind, TableSchema
from tailrace.model.value import Json, Value, from_literal

__all__ = ["ExactKey", "KeyBounds"]

_T = TypeVar("_T")

_INTEGER_MAX = 2**63 - 1
_INTEGER_MIN = -(2**63)


class ExactKey:
    """Passes the changes of one key.

    `key` is that key as the log writes it, for comparison by bytes; None when no key of the table can equal the
    literals. An empty `pk` is no filter: make none of it.
    """

    __slots__ = ("key",)

    def __init__(self, literals: Json, schema: TableSchema) -> None:
        """Compile `pk`.

        Raises:
            InvalidRequestError: The table has no primary key, the width differs, or a literal is malformed.
        """
        if not isinstance(literals, list) or not literals:
            raise InvalidRequestError("pk is a list of typed literals")
        if not schema.key:
            raise InvalidRequestError(f"table {schema.table.wire} has no primary key to filter by")
        if len(literals) != len(schema.key):
            raise InvalidRequestError(
                f"pk has {len(literals)} values; the primary key of {schema.table.wire} has {len(schema.key)} columns"
            )
        self.key = _reading("pk", lambda: key_bytes(literals, schema))

    @property
    def canonical(self) -> bytes:
        """Return what equal filters by key have in common: the key, which no other kind of filter gives."""
        return b"" if self.key is None else self.key

    def select(self, keys: Sequence[bytes]) -> list[bool]:
        """Tell for each key whether it passes."""
        passing = {self.key, NO_KEY}
        return [key in passing for key in keys]

    def mask(self, keys: Any) -> Any:
        """Return a boolean Arrow array for an Arrow array of keys."""
        of_tables = pc.equal(keys, pa.scalar(NO_KEY, pa.binary()))
        if self.key is None:
            return of_tables
        return pc.or_(pc.equal(keys, pa.scalar(self.key, pa.binary())), of_tables)


class KeyBounds:
    """Passes the changes whose key lies between two bounds, which are within.

    Keys of several columns are compared column by column. A bound may have fewer values than the key has columns: it
    bounds those columns only, so that every key which begins like the bound is within.
    """

    __slots__ = ("_lower", "_passes", "_schema", "_upper", "canonical", "integers")

    def __init__(self, bounds: Json, schema: TableSchema) -> None:
        """Compile `pk_range`: an object with `lower_bound` or `upper_bound` or both, each a literal or a list of them.

        Raises:
            InvalidRequestError: There is no bound, the table has no primary key, a bound has more values than the key
                has columns, a literal is malformed, or the lower bound lies above the upper one.
        """
        known = {"lower_bound", "upper_bound"}
        if not isinstance(bounds, dict) or not bounds.keys() <= known:
            raise InvalidRequestError("pk_range is an object with lower_bound and upper_bound")
        if not schema.key:
            raise InvalidRequestError(f"table {schema.table.wire} has no primary key to filter by")
        self._schema = schema
        self._lower = _bound("lower_bound", bounds.get("lower_bound"), schema)
        self._upper = _bound("upper_bound", bounds.get("upper_bound"), schema)
        if self._lower is None and self._upper is None:
            raise InvalidRequestError("pk_range needs lower_bound or upper_bound")
        _refuse_empty(self._lower, self._upper)
        self.integers = _integer_bounds(self._lower, self._upper, schema)
        """Both bounds where keys are compared as integers; only then, None otherwise."""

        self._passes = self._passes_integer() if self.integers is not None else self._passes_values
        self.canonical = f"pk_range:{schema.version}:{self._lower!r}..{self._upper!r}"

    def select(self, keys: Sequence[bytes]) -> list[bool]:
        """Tell for each key whether it passes."""
        passes = self._passes
        return [passes(key) for key in keys]

    def mask(self, keys: Any) -> Any:
        """Return a boolean Arrow array for an Arrow array of keys; vectorised for keys of one integer."""
        if self.integers is not None:
            lower, upper = self.integers
            try:
                numbers = pc.binary_slice(keys, 1, -1).cast(pa.utf8()).cast(pa.int64())
            except pa.ArrowInvalid:
                return pa.array(self.select(keys.to_pylist()), pa.bool_())
            return pc.and_(pc.greater_equal(numbers, lower), pc.less_equal(numbers, upper))
        return pa.array(self.select(keys.to_pylist()), pa.bool_())

    def _passes_integer(self) -> Callable[[bytes], bool]:
        assert self.integers is not None
        lower, upper = self.integers

        def passes(key: bytes) -> bool:
            try:
                return lower <= int(key[1:-1]) <= upper
            except ValueError:
                return self._passes_values(key)

        return passes

    def _passes_values(self, key: bytes) -> bool:
        if key == NO_KEY:
            return True
        try:
            values = decode_key(key, self._schema)
        except (InvalidValueError, msgspec.DecodeError, ValueError):
            return False
        return (self._lower is None or _side(values, self._lower) in {0, 1}) and (
            self._upper is None or _side(values, self._upper) in {0, -1}
        )


def _bound(name: str, bound: Json, schema: TableSchema) -> tuple[Value, ...] | None:
    if bound is None:
        return None
    literals = bound if isinstance(bound, list) else [bound]
    if not 1 <= len(literals) <= len(schema.key):
        raise InvalidRequestError(
            f"{name} has {len(literals)} values; the primary key of {schema.table.wire} has {len(schema.key)} columns"
        )
    return _reading(name, lambda: tuple(from_literal(literal) for literal in literals))


def _reading(name: str, read: Callable[[], _T]) -> _T:
    try:
        return read()
    except InvalidValueError as error:
        raise InvalidRequestError(f"{name}: {error}") from error


def _refuse_empty(lower: tuple[Value, ...] | None, upper: tuple[Value, ...] | None) -> None:
    """Refuse bounds between which nothing can lie."""
    if lower is None or upper is None:
        return
    width = min(len(lower), len(upper))
    if any(one[0] != other[0] for one, other in _orders(lower, upper)):
        raise InvalidRequestError("lower_bound and upper_bound are of different types")
    if order_of_key(lower[:width]) > order_of_key(upper[:width]):
        raise InvalidRequestError("lower_bound is above upper_bound")


def _orders(one: Sequence[Value], other: Sequence[Value]) -> list[tuple[Any, Any]]:
    return [(order_of(left), order_of(right)) for left, right in zip(one, other, strict=False)]


def _side(values: Sequence[Value], bound: Sequence[Value]) -> int | None:
    """Return -1, 0 or 1 as a key lies below, at or above a bound; None if they cannot be compared."""
    for left, right in _orders(values, bound):
        if left[0] != right[0]:
            return None
        if left != right:
            return -1 if left < right else 1
    return 0


def _integer_bounds(
    lower: tuple[Value, ...] | None, upper: tuple[Value, ...] | None, schema: TableSchema
) -> tuple[int, int] | None:
    """Return both bounds as integers of 64 bits where the key is one signed integer and they are integers."""
    if len(schema.key) != 1 or schema.key_columns[0].kind is not Kind.I64:
        return None
    ends: list[int] = []
    for bound, default in ((lower, _INTEGER_MIN), (upper, _INTEGER_MAX)):
        value = default if bound is None else bound[0]
        if not isinstance(value, int) or isinstance(value, bool):
            return None
        ends.append(min(max(value, _INTEGER_MIN), _INTEGER_MAX))
    return ends[0], ends[1]
