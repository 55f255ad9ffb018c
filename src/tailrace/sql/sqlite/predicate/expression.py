"""A checked expression: names are columns, and every part knows how SQLite would type it. Pure."""

from msgspec import Struct

from tailrace.sql.predicate import Image, SqlValue
from tailrace.sql.sqlite.affinity import Affinity, Classes

__all__ = ["Alias", "Cell", "Choice", "Constant", "Expression", "Invocation", "OpWord", "Typing", "canonical_text"]


class Typing(Struct, frozen=True):
    """How SQLite types an expression.

    `declared` are the storage classes that its value should be of, by the declared types of its columns. `implicit` is
    the collation that it has from a column, `explicit` the one that COLLATE gives it or anything in it.
    """

    declared: Classes
    affinity: Affinity = Affinity.NONE
    implicit: str | None = None
    explicit: str | None = None


class Constant(Struct, frozen=True):
    """A literal value."""

    value: SqlValue
    typing: Typing
    place: int


class Cell(Struct, frozen=True):
    """A column of a row image."""

    image: Image
    column: str
    typing: Typing
    place: int


class OpWord(Struct, frozen=True):
    """The change's op as a word."""

    typing: Typing
    place: int


class Invocation(Struct, frozen=True):
    """An operator, a cast (`CAST TEXT`) or a function with its operands.

    `affinity` and `collation` are those of the comparison where it is one. `COLLATE` and the prefix `+` only change the
    typing.
    """

    name: str
    operands: tuple["Expression", ...]
    typing: Typing
    place: int
    affinity: Affinity = Affinity.NONE
    collation: str = "BINARY"


class Choice(Struct, frozen=True):
    """CASE: the first branch whose condition is true. With a base, conditions are comparisons with its alias."""

    base: "Expression | None"
    alias: "Alias | None"
    branches: tuple[tuple["Expression", "Expression"], ...]
    otherwise: "Expression"
    typing: Typing
    place: int


class Alias(Struct, frozen=True):
    """Stands for an expression whose value has been computed before."""

    number: int
    typing: Typing
    place: int


Expression = Constant | Cell | OpWord | Invocation | Choice | Alias


def canonical_text(expression: Expression) -> str:
    """Return the expression fully bracketed, with columns as the schema spells them."""
    match expression:
        case Constant(value):
            return _literal(value)
        case Cell(image, column):
            name = '"' + column.replace('"', '""') + '"'
            return name if image is Image.ROW else f"{image}.{name}"
        case OpWord():
            return "op"
        case Alias(number):
            return f"#{number}"
        case Choice(base, _, branches, otherwise):
            texts = [f"WHEN {canonical_text(when)} THEN {canonical_text(then)}" for when, then in branches]
            first = [] if base is None else [canonical_text(base)]
            return f"CASE {' '.join([*first, *texts])} ELSE {canonical_text(otherwise)} END"
        case Invocation(name, operands):
            typing = expression.typing
            mark = f" {typing.explicit}" if name == "COLLATE" else ""
            return f"({name}{mark} {' '.join(canonical_text(operand) for operand in operands)})"


def _literal(value: SqlValue) -> str:
    match value:
        case None:
            return "NULL"
        case str():
            return "'" + value.replace("'", "''") + "'"
        case bytes():
            return f"x'{value.hex()}'"
        case _:
            return repr(value)
