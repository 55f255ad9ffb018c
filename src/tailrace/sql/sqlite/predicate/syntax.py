"""The parts of a parsed SQL expression, before names have a meaning. Pure."""

from msgspec import Struct

__all__ = [
    "Case",
    "Cast",
    "Collate",
    "Function",
    "LiteralValue",
    "Node",
    "SqlLiteral",
    "SqlName",
    "SqlOperation",
    "height_of",
]

LiteralValue = int | float | str | bytes | None


class SqlLiteral(Struct, frozen=True):
    """A number, a text, a blob or NULL."""

    value: LiteralValue
    place: int


class SqlName(Struct, frozen=True):
    """A name: `column` or `image.column`. `quoted` tells whether the last part is in quotation marks."""

    parts: tuple[str, ...]
    quoted: bool
    place: int


class SqlOperation(Struct, frozen=True):
    """An operator with its operands, in the order in which they are written.

    `AND` and `OR` have two operands or more, `BETWEEN` has three, `IN` its left side and the list, `LIKE` two or three
    (with `ESCAPE`). Operators that begin with a sign and have one operand are prefixes. `NOT x` is an operation of its
    own around `IN`, `BETWEEN`, `LIKE` and `GLOB`.
    """

    operator: str
    operands: tuple["Node", ...]
    place: int
    height: int


class Function(Struct, frozen=True):
    """A call of a function; its name in small letters."""

    name: str
    arguments: tuple["Node", ...]
    place: int
    height: int


class Case(Struct, frozen=True):
    """`CASE [base] WHEN … THEN … [ELSE …] END`."""

    base: "Node | None"
    branches: tuple[tuple["Node", "Node"], ...]
    otherwise: "Node | None"
    place: int
    height: int


class Cast(Struct, frozen=True):
    """`CAST(value AS type_name)`."""

    value: "Node"
    type_name: str
    place: int
    height: int


class Collate(Struct, frozen=True):
    """`value COLLATE collation`."""

    value: "Node"
    collation: str
    place: int
    height: int


Node = SqlLiteral | SqlName | SqlOperation | Function | Case | Cast | Collate


def height_of(*nodes: Node | None) -> int:
    """Return the height of a node over these ones: one more than the highest of them."""
    return 1 + max((getattr(node, "height", 1) for node in nodes if node is not None), default=0)
