"""One spelling for each expression, so that equal predicates are found equal. Pure."""

from tailrace.sql.predicate import Image, SqlValue
from tailrace.sql.sqlite.predicate.expression import (
    Alias,
    Cell,
    Choice,
    Constant,
    Expression,
    Invocation,
    OpWord,
)

__all__ = ["canonical_text"]


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
