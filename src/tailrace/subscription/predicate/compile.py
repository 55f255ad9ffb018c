"""SQL predicates: from a text to a function over images. Pure.

Two functions are made of each predicate. One takes cells to be of their declared types, which the decoder checks as it
goes; it is nearly what one would write by hand. A row with another storage class in one of the columns is handed to the
second, which takes cells as they are.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from tailrace.model.errors import InvalidPredicateError, PredicateError
from tailrace.model.op import Op
from tailrace.model.table import TableSchema
from tailrace.subscription.predicate.affinity import Affinity, Classes
from tailrace.subscription.predicate.canonical import canonical_text
from tailrace.subscription.predicate.cells import CellPlan, cell_plan, image_decoder
from tailrace.subscription.predicate.check import check
from tailrace.subscription.predicate.emit import Code, Emitter
from tailrace.subscription.predicate.expression import (
    Alias,
    Cell,
    Choice,
    Constant,
    Expression,
    Image,
    Invocation,
    OpWord,
)
from tailrace.subscription.predicate.predicate import Equality
from tailrace.subscription.predicate.sql import parse
from tailrace.subscription.predicate.value import SqlValue, numeric, textual

__all__ = ["SqlPredicate", "compile_where"]

_WORDS = {int(op): op.word for op in Op}

_LOCALS = {Image.ROW: "r", Image.BEFORE: "b", Image.AFTER: "a"}
"""First letter of the local names of each image's cells."""


def compile_where(text: str, schema: TableSchema, dialect: str) -> "SqlPredicate":
    """Return the predicate that a SQL expression over a table's rows is.

    Raises:
        InvalidPredicateError: It cannot be read, names what is not there, can never make sense, or is not supported.
    """
    expression = check(parse(text, dialect), schema, text)
    try:
        return SqlPredicate(expression, schema)
    except (PredicateError, SyntaxError, RecursionError, MemoryError) as error:
        reason = error.reason if isinstance(error, PredicateError) else "the predicate is too large to compile"
        raise InvalidPredicateError(reason, text=text, place=0) from error


class SqlPredicate:
    """A compiled SQL expression; see `tailrace.subscription.predicate.predicate.Predicate`."""

    __slots__ = ("_select", "canonical", "columns", "equalities")

    def __init__(self, expression: Expression, schema: TableSchema) -> None:
        parts = list(_walk(expression))
        cells = [part for part in parts if isinstance(part, Cell)]
        paired = any(isinstance(part, OpWord) or (isinstance(part, Cell) and part.image is not Image.ROW) for part in parts)
        self.canonical = f"sql:{canonical_text(expression)}"
        self.columns = frozenset(cell.column for cell in cells)
        self.equalities = tuple(_equalities(expression))
        needed = {image: sorted({cell.column for cell in cells if cell.image is image}) for image in Image}
        general = _build(expression, schema, needed, paired=paired or not cells, typed=False, general=None)
        self._select = _build(expression, schema, needed, paired=paired or not cells, typed=True, general=general)

    def select(
        self, ops: Sequence[int], befores: Sequence[bytes | None], afters: Sequence[bytes | None]
    ) -> list[bool]:
        """Tell for each change whether it passes.

        Raises:
            PredicateError: It failed on one of them.
        """
        try:
            return self._select(ops, befores, afters)  # type: ignore[no-any-return]
        except msgspec.DecodeError as error:
            raise PredicateError("an image is not valid JSON") from error
        except (ArithmeticError, MemoryError, RecursionError, TypeError, ValueError) as error:
            raise PredicateError(f"it raised {type(error).__name__}") from error


def _build(
    expression: Expression,
    schema: TableSchema,
    needed: Mapping[Image, Sequence[str]],
    *,
    paired: bool,
    typed: bool,
    general: Any,
) -> Any:
    """Return a function of ops, before images and after images that lists which pass."""
    plans = {
        (image, name): cell_plan(column, schema, typed=typed)
        for image, names in needed.items()
        for name in names
        if (column := schema.column(name)) is not None
    }
    cells = {
        (image, name): Code(f"{_LOCALS[image]}{names.index(name)}", plans[image, name].classes, simple=True)
        for image, names in needed.items()
        for name in names
    }
    emitter = Emitter(cells)
    condition = emitter.true(expression)
    namespace = emitter.names
    namespace |= {"WORDS": _WORDS, "SCHEMA": int(Op.SCHEMA), "general": general, "Mismatch": msgspec.ValidationError}
    loads = {}
    for image, names in needed.items():
        letter = _LOCALS[image]
        pairs = [(name, plans[image, name]) for name in names]
        namespace[f"decode_{letter}"] = image_decoder(pairs)
        namespace[f"none_{letter}"] = image_decoder(pairs)(b"{}")
        namespace |= {f"plain_{letter}{number}": plan.plain for number, (_, plan) in enumerate(pairs)}
        namespace |= {f"convert_{letter}{number}": plan.convert for number, (_, plan) in enumerate(pairs)}
        loads[image] = [_load(letter, number, plan) for number, (_, plan) in enumerate(pairs)]
    lines = _paired(condition, loads) if paired else _either(condition, loads[Image.ROW])
    source = _function(lines, guarded=general is not None)
    exec(compile(source, "<predicate>", "exec"), namespace)  # noqa: S102 - the source holds our own names and literals
    return namespace["select"]


def _load(letter: str, number: int, plan: CellPlan) -> str:
    """Return the statement that gives a cell its local name."""
    local = f"{letter}{number}"
    if plan.convert is None:
        return f"{local} = {letter}.c{number}"
    return f"{local} = x if (x := {letter}.c{number}).__class__ in plain_{local} else convert_{local}(x)"


def _either(condition: str, loads: Sequence[str]) -> list[str]:
    """Return the body for a predicate on the row: it passes if it is true for one of the images."""
    lines = []
    for image in ("after", "before"):
        lines += [f"if {image} is not None:", f"    r = decode_r({image})", *(f"    {load}" for load in loads)]
        lines += [f"    if {condition}:", "        add(True)", "        continue"]
    return [*lines, "add(False)"]


def _paired(condition: str, loads: Mapping[Image, Sequence[str]]) -> list[str]:
    """Return the body for a predicate on the pair of images: it is evaluated once."""
    lines = ["word = WORDS[op]"]
    if loads[Image.ROW]:
        lines.append("image = before if after is None else after")
    for image, name in ((Image.ROW, "image"), (Image.BEFORE, "before"), (Image.AFTER, "after")):
        letter = _LOCALS[image]
        if loads[image]:
            lines += [f"{letter} = none_{letter} if {name} is None else decode_{letter}({name})", *loads[image]]
    return [*lines, f"add(True if {condition} else False)"]


def _function(body: Sequence[str], *, guarded: bool) -> str:
    """Return the source of the whole function; a guarded one hands rows of other types to the general one."""
    lines = [
        "def select(ops, befores, afters):",
        "    passed = []",
        "    add = passed.append",
        "    for op, before, after in zip(ops, befores, afters, strict=True):",
        "        if op == SCHEMA:",
        "            add(True)",
        "            continue",
    ]
    if guarded:
        lines += ["        try:", *(f"            {line}" for line in body)]
        lines += ["        except Mismatch:", "            passed += general((op,), (before,), (after,))"]
    else:
        lines += [f"        {line}" for line in body]
    return "\n".join([*lines, "    return passed", ""])


def _walk(expression: Expression) -> Iterator[Expression]:
    yield expression
    match expression:
        case Invocation(_, operands):
            parts = list(operands)
        case Choice(base, _, branches, otherwise):
            parts = [] if base is None else [base]
            parts += [part for branch in branches for part in branch] + [otherwise]
        case Constant() | Cell() | OpWord() | Alias():
            parts = []
    for part in parts:
        yield from _walk(part)


def _equalities(expression: Expression) -> Iterator[Equality]:
    """Yield the equalities of a column with a literal that must hold for the whole to be true."""
    match expression:
        case Invocation("AND", operands):
            for operand in operands:
                yield from _equalities(operand)
        case Invocation("=" | "IS" | "IN", (Cell(image, column, typing), Constant(value))) if value is not None:
            affinity = typing.affinity if expression.name == "IN" else expression.affinity
            yield from _equality(image, column, _converted(value, affinity), expression)
        case Invocation("=" | "IS", (Constant(value), Cell(image, column))) if value is not None:
            yield from _equality(image, column, _converted(value, expression.affinity), expression)


def _equality(image: Image, column: str, value: SqlValue, comparison: Invocation) -> Iterator[Equality]:
    if comparison.collation == "BINARY" or not isinstance(value, str):
        yield Equality(image, column, value)


def _converted(value: SqlValue, affinity: Affinity) -> SqlValue:
    if affinity >= Affinity.NUMERIC:
        return numeric(value)
    return textual(value) if affinity is Affinity.TEXT else value
