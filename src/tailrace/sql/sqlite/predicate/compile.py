"""SQL predicates: from a text to a function over images. Pure.

Two functions are made of each predicate. One takes cells to be of their declared types, which the decoder checks as it
goes; it is nearly what one would write by hand. A row with another storage class in one of the columns is handed to the
second, which takes cells as they are.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import CodeType, FunctionType
from typing import Any

import msgspec

from tailrace.model.errors import InvalidPredicateError, PredicateError
from tailrace.model.op import Op
from tailrace.model.table import TableSchema
from tailrace.sql.predicate import Equality, Image, SqlValue
from tailrace.sql.sqlite.predicate.canonical import canonical_text
from tailrace.sql.sqlite.predicate.cells import CellPlan, cell_plan, image_decoder
from tailrace.sql.sqlite.predicate.check import check
from tailrace.sql.sqlite.predicate.emit import Code, Emitter
from tailrace.sql.sqlite.predicate.expression import (
    Alias,
    Cell,
    Choice,
    Constant,
    Expression,
    Invocation,
    OpWord,
)
from tailrace.sql.sqlite.predicate.library import with_affinity
from tailrace.sql.sqlite.predicate.sql import parse
from tailrace.sql.sqlite.predicate.work import Weights, weigh

__all__ = ["SqlPredicate", "compile_where"]

_Select = Callable[[Sequence[int], Sequence[bytes | None], Sequence[bytes | None]], list[bool]]

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
    """A compiled SQL expression; see `tailrace.sql.predicate.Predicate`.

    `pairs` tells that it is about the change, by `before`, `after` or `op`, and not about one row.
    """

    __slots__ = ("_bytes_max", "_select", "canonical", "columns", "costly", "equalities", "pairs")

    def __init__(self, expression: Expression, schema: TableSchema) -> None:
        parts = list(_walk(expression))
        cells = [part for part in parts if isinstance(part, Cell)]
        self.pairs = any(
            isinstance(part, OpWord) or (isinstance(part, Cell) and part.image is not Image.ROW) for part in parts
        )
        self.canonical = f"sql:{schema.version}:{canonical_text(expression)}"
        self.columns = frozenset(cell.column for cell in cells)
        self.costly = False
        self.equalities = tuple(_equalities(expression))
        needed = {image: sorted({cell.column for cell in cells if cell.image is image}) for image in Image}
        weights = weigh(expression)
        self._bytes_max = weights.typed_bytes_max
        plan = _Plan(expression, schema, needed, weights, paired=self.pairs or not cells)
        self._select = plan.build(typed=True)

    def select(self, ops: Sequence[int], befores: Sequence[bytes | None], afters: Sequence[bytes | None]) -> list[bool]:
        """Tell for each change whether it passes.

        Raises:
            PredicateError: It failed on one of them, or one of them is too large.
        """
        for images in (befores, afters):
            _refuse_large(max(map(len, filter(None, images)), default=0), self._bytes_max)
        try:
            return self._select(ops, befores, afters)
        except msgspec.DecodeError as error:
            raise PredicateError("an image is not valid JSON") from error
        except (ArithmeticError, MemoryError, RecursionError, SyntaxError, TypeError, ValueError) as error:
            raise PredicateError(f"it raised {type(error).__name__}") from error


def _refuse_large(size_bytes: int, bytes_max: int) -> None:
    """Refuse a row on which the predicate would take too long.

    Raises:
        PredicateError: It would.
    """
    if size_bytes > bytes_max:
        reason = f"a row of {size_bytes} bytes is too large for it: the largest is {bytes_max}, more for fewer parts"
        raise PredicateError(reason)


class _Plan:
    """What both functions of a predicate are made of."""

    def __init__(
        self,
        expression: Expression,
        schema: TableSchema,
        needed: Mapping[Image, Sequence[str]],
        weights: Weights,
        *,
        paired: bool,
    ) -> None:
        self._expression = expression
        self._schema = schema
        self._needed = needed
        self._bytes_max = weights.general_bytes_max
        self._paired = paired
        self._general: _Select | None = None

    def build(self, *, typed: bool) -> "_Select":
        """Return a function of ops, before images and after images that lists which pass."""
        plans = {image: [self._cell(name, typed=typed) for name in names] for image, names in self._needed.items()}
        cells = {
            (image, name): Code(f"{_LOCALS[image]}{number}", plan.classes, simple=True)
            for image in Image
            for number, (name, plan) in enumerate(plans[image])
        }
        emitter = Emitter(cells)
        condition = emitter.true(self._expression)
        loads = {
            image: [_load(image, number, plan) for number, (_, plan) in enumerate(plans[image])] for image in Image
        }
        body = _paired(condition, loads) if self._paired else _either(condition, loads[Image.ROW])
        names = emitter.names | _decoders(plans)
        names |= {"WORDS": _WORDS, "SCHEMA": int(Op.SCHEMA), "Mismatch": msgspec.ValidationError, "general": self._one}
        return _assemble(_function(body, guarded=typed), names)

    def _cell(self, name: str, *, typed: bool) -> tuple[str, CellPlan]:
        column = self._schema.column(name)
        assert column is not None
        return name, cell_plan(column, self._schema, typed=typed)

    def _one(self, op: int, before: bytes | None, after: bytes | None) -> bool:
        """Evaluate the predicate on one change whose cells are not of their declared types."""
        for image in (before, after):
            _refuse_large(len(image or b""), self._bytes_max)
        if self._general is None:
            self._general = self.build(typed=False)
        return self._general((op,), (before,), (after,))[0]


def _decoders(plans: Mapping[Image, Sequence[tuple[str, CellPlan]]]) -> dict[str, Any]:
    """Return the names that the statements of `_load` and the bodies refer to."""
    names: dict[str, Any] = {}
    for image, pairs in plans.items():
        letter = _LOCALS[image]
        names[f"decode_{letter}"] = decode = image_decoder(pairs)
        names[f"none_{letter}"] = decode(b"{}")
        names |= {f"plain_{letter}{number}": plan.plain for number, (_, plan) in enumerate(pairs)}
        names |= {f"convert_{letter}{number}": plan.convert for number, (_, plan) in enumerate(pairs)}
    return names


def _assemble(source: str, names: Mapping[str, Any]) -> _Select:
    """Return the function that a source defines, with just the names that it uses."""
    code = compile(source, "<predicate>", "exec")
    body = next(constant for constant in code.co_consts if isinstance(constant, CodeType))
    return FunctionType(body, {name: names[name] for name in body.co_names if name in names})


def _load(image: Image, number: int, plan: CellPlan) -> str:
    """Return the statement that gives a cell its local name."""
    letter = _LOCALS[image]
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
        lines += ["        except Mismatch:", "            add(general(op, before, after))"]
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
            yield from _equality(image, column, with_affinity(value, affinity), expression)
        case Invocation("=" | "IS", (Constant(value), Cell(image, column))) if value is not None:
            yield from _equality(image, column, with_affinity(value, expression.affinity), expression)


def _equality(image: Image, column: str, value: SqlValue, comparison: Invocation) -> Iterator[Equality]:
    if comparison.collation == "BINARY" or not isinstance(value, str):
        yield Equality(image, column, value)
