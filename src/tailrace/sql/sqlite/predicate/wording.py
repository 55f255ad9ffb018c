"""How messages about predicates name things. Pure."""

from tailrace.sql.sqlite.affinity import Classes
from tailrace.sql.sqlite.predicate.expression import Cell, Constant, Expression, Invocation
from tailrace.sql.sqlite.predicate.function import FUNCTIONS

__all__ = ["class_words", "describe"]


def describe(expression: Expression) -> str:
    """Name an expression for a message."""
    match expression:
        case Cell(_, column):
            return f"column {column}"
        case Constant(value):
            return "this value" if value is None else f"the literal {value!r:.40}"
        case Invocation(name) if name in FUNCTIONS:
            return f"{name}()"
        case _:
            return "this expression"


def class_words(classes: Classes) -> str:
    """Name storage classes for a message."""
    words = {Classes.TEXT: "text", Classes.BLOB: "a blob", Classes.INTEGER: "an integer", Classes.REAL: "a real number"}
    if classes & Classes.NUMBER == Classes.NUMBER:
        words = {Classes.TEXT: "text", Classes.BLOB: "a blob", Classes.NUMBER: "a number"}
    return " or ".join(word for flag, word in words.items() if classes & flag)
