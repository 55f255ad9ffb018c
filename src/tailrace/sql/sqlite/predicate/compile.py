"""SQL predicates: from a text to a function over images. Pure.

Two functions are made of each predicate. One takes cells to be of their declared types, which the decoder checks as it
goes; it is nearly what one would write by hand. A row with another storage class in one of the columns, or without one
of them, is handed to the second, which takes cells as they are.

A cell that an image lacks was not sent by the source. That of the row after an update has not changed, so it is what
the row before it has; otherwise it is not known. Neither is the row before an update or a deletion whose image is
missing. What cannot be decided for that reason alone passes `select`, so that nothing is lost, and is None in `decide`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import CodeType, FunctionType
from typing import Any

import msgspec

from tailrace.model.errors import InvalidPredicateError, PredicateError
from tailrace.model.op import ROWLESS, Op
from tailrace.model.table import TableSchema
from tailrace.sql.predicate import Equality, Image, SqlValue
from tailrace.sql.sqlite.affinity import with_facts
from tailrace.sql.sqlite.predicate.cells import CellPlan, cell_plan, image_decoder
from tailrace.sql.sqlite.predicate.check import check
from tailrace.sql.sqlite.predicate.emit import Emitter, PythonCode
from tailrace.sql.sqlite.predicate.expression import (
    Alias,
    Cell,
    Choice,
    Constant,
    Expression,
    Invocation,
    OpWord,
    canonical_text,
)
from tailrace.sql.sqlite.predicate.library import with_affinity
from tailrace.sql.sqlite.predicate.sql import parse
from tailrace.sql.sqlite.predicate.work import Weights, weigh

__all__ = ["SqlPredicate", "compile_where"]

_Select = Callable[[Sequence[int], Sequence[bytes | None], Sequence[bytes | None]], list[Any]]
_Cells = dict[str, msgspec.Raw]

_WORDS = {int(op): op.word for op in Op}
_ROWLESS_MIN = int(min(ROWLESS))
"""Ops from here on are of whole tables. Comparing numbers costs a third of looking into a set, once per change."""

_LOCALS = {Image.ROW: "r", Image.BEFORE: "b", Image.AFTER: "a"}
"""First letter of the local names of each image's cells."""


def compile_where(text: str, schema: TableSchema) -> "SqlPredicate":
    """Return the predicate that a SQL expression over a table's rows is.

    Raises:
        InvalidPredicateError: It cannot be read, names what is not there, can never make sense, or is not supported.
    """
    schema = with_facts(schema)
    expression = check(parse(text), schema, text)
    try:
        return SqlPredicate(expression, schema)
    except (PredicateError, SyntaxError, RecursionError, MemoryError) as error:
        reason = error.reason if isinstance(error, PredicateError) else "the predicate is too large to compile"
        raise InvalidPredicateError(reason, text=text, place=0) from error


class SqlPredicate:
    """A compiled SQL expression; see `tailrace.sql.predicate.Predicate`.

    `pairs` tells that it is about the change, by `before`, `after` or `op`, and not about one row.
    """

    __slots__ = ("_bytes_max", "_decide", "_plan", "_select", "canonical", "columns", "costly", "equalities", "pairs")

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
        weights = weigh(expression)
        self._bytes_max = weights.typed_bytes_max
        self._plan = _Plan(expression, schema, _needed(expression), weights, paired=self.pairs or not cells)
        self._select = self._plan.build(typed=True, undecided=True)
        self._decide: _Select | None = None

    def select(self, ops: Sequence[int], befores: Sequence[bytes | None], afters: Sequence[bytes | None]) -> list[bool]:
        """Tell for each change whether it passes.

        Raises:
            PredicateError: It failed on one of them, or one of them is too large.
        """
        return self._run(self._select, ops, befores, afters)

    def decide(
        self, ops: Sequence[int], befores: Sequence[bytes | None], afters: Sequence[bytes | None]
    ) -> list[bool | None]:
        """Do the same, with None for each change for which the source did not send what would decide.

        Raises:
            PredicateError: As `select`.
        """
        if self._decide is None:
            self._decide = self._plan.build(typed=True, undecided=None)
        return self._run(self._decide, ops, befores, afters)

    def _run(
        self, run: _Select, ops: Sequence[int], befores: Sequence[bytes | None], afters: Sequence[bytes | None]
    ) -> list[Any]:
        for images in (befores, afters):
            _refuse_large(max(map(len, filter(None, images)), default=0), self._bytes_max)
        try:
            return run(ops, befores, afters)
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
        self._conditions: list[_Condition] | None = None

    def build(self, *, typed: bool, undecided: bool | None) -> "_Select":
        """Return a function of ops, before images and after images that lists which pass.

        `undecided` is what it says of changes that lack an image or a cell that would decide.
        """
        plans = {image: [self._cell(name, typed=typed) for name in names] for image, names in self._needed.items()}
        cells = {
            (image, name): PythonCode(f"{_LOCALS[image]}{number}", plan.classes, simple=True)
            for image in Image
            for number, (name, plan) in enumerate(plans[image])
        }
        emitter = Emitter(cells)
        condition = emitter.true(self._expression)
        loads = {
            image: [_load(image, number, plan) for number, (_, plan) in enumerate(plans[image])] for image in Image
        }
        if self._paired:
            body = _paired(condition, loads)
        else:
            body = _either(
                condition, loads[Image.ROW], keyed=bool(set(self._schema.key) & set(self._needed[Image.ROW]))
            )
        names = emitter.names | _decoders(plans)
        names |= {"WORDS": _WORDS, "ROWLESS_MIN": _ROWLESS_MIN, "INSERT": int(Op.INSERT), "UNDECIDED": undecided}
        names |= {"Mismatch": msgspec.ValidationError, "general": partial(self._one, undecided)}
        return _assemble(_function(body, guarded=typed), names)

    def _cell(self, name: str, *, typed: bool) -> tuple[str, CellPlan]:
        column = self._schema.column(name)
        assert column is not None
        return name, cell_plan(column, typed=typed)

    def _one(self, undecided: bool | None, op: int, before: bytes | None, after: bytes | None) -> bool | None:
        """Evaluate the predicate on one change whose cells are not of their declared types, or not all there."""
        for image in (before, after):
            _refuse_large(len(image or b""), self._bytes_max)
        if self._general is None:
            self._general = self.build(typed=False, undecided=None)
        try:
            decided = self._general((op,), (before,), (after,))[0]
        except msgspec.ValidationError:
            decided = self._partial(op, before, after)
        return undecided if decided is None else decided

    def _partial(self, op: int, before: bytes | None, after: bytes | None) -> bool | None:
        """Evaluate the predicate on one change of which the source did not send all that it reads."""
        old, new = (None if image is None else _CELLS.decode(image) for image in (before, after))
        if old is None and op != Op.INSERT:
            old = {}
        if old is not None and new is not None:
            new = {**old, **new}  # what an update does not send has not changed
            old |= {name: new[name] for name in self._schema.key if name in new}  # an update keeps the key
        if self._paired:
            return self._possible(op, old, new)
        decided = [self._possible(int(Op.INSERT), None, cells) for cells in (new, old) if cells is not None]
        return True if True in decided else None if None in decided else False

    def _possible(self, op: int, old: _Cells | None, new: _Cells | None) -> bool | None:
        """Evaluate those of the conditions for which all is there: if one is not true, the predicate is not either."""
        if self._conditions is None:
            self._conditions = [_Condition(self, part) for part in _conditions(self._expression)]
        decided = [condition.decide(op, old, new) for condition in self._conditions]
        return False if False in decided else None if None in decided else True

    def part(self, expression: Expression) -> "_Plan":
        """Return the plan for a part of the predicate."""
        return _Plan(expression, self._schema, _needed(expression), weigh(expression), paired=self._paired)


class _Condition:
    """One of the conditions that a predicate joins by AND, for changes that lack something."""

    def __init__(self, whole: _Plan, expression: Expression) -> None:
        self._needed = _needed(expression)
        self._run = whole.part(expression).build(typed=False, undecided=None)

    def decide(self, op: int, old: _Cells | None, new: _Cells | None) -> bool | None:
        """Tell whether it is true; None where the cells that it reads were not sent."""
        needed = self._needed
        rows = ((Image.ROW, old if new is None else new), (Image.BEFORE, old), (Image.AFTER, new))
        if any(cells is not None and any(name not in cells for name in needed[image]) for image, cells in rows):
            return None
        names = frozenset(name for image in Image for name in needed[image])
        images = (
            None if cells is None else msgspec.json.encode({name: cells[name] for name in names if name in cells})
            for cells in (old, new)
        )
        return bool(self._run((op,), *((image,) for image in images))[0])


_CELLS = msgspec.json.Decoder(_Cells)


def _needed(expression: Expression) -> dict[Image, list[str]]:
    """Return the columns that an expression reads of each image."""
    cells = [part for part in _walk(expression) if isinstance(part, Cell)]
    return {image: sorted({cell.column for cell in cells if cell.image is image}) for image in Image}


def _decoders(plans: Mapping[Image, Sequence[tuple[str, CellPlan]]]) -> dict[str, Any]:
    """Return the names that the statements of `_load` and the bodies refer to."""
    names: dict[str, Any] = {}
    for image, pairs in plans.items():
        letter = _LOCALS[image]
        names[f"decode_{letter}"] = decode = image_decoder(pairs)
        names[f"none_{letter}"] = decode(msgspec.json.encode(dict.fromkeys(name for name, _ in pairs)))
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


def _either(condition: str, loads: Sequence[str], *, keyed: bool) -> list[str]:
    """Return the body for a predicate on the row: it passes if it is true for one of the images.

    A row before that was not sent decides nothing but what is on the key (`keyed`), which an update keeps.
    """
    lines = []
    for image in ("after", "before"):
        lines += [f"if {image} is not None:", f"    r = decode_r({image})", *(f"    {load}" for load in loads)]
        lines += [f"    if {condition}:", "        add(True)", "        continue"]
    if keyed:
        return [*lines, "if before is None and op != INSERT:", "    raise Mismatch", "add(False)"]
    return [*lines, "add(UNDECIDED if before is None and op != INSERT else False)"]


def _paired(condition: str, loads: Mapping[Image, Sequence[str]]) -> list[str]:
    """Return the body for a predicate on the pair of images: it is evaluated once.

    An inserted row has no row before it, and a deleted one none after it: their cells are NULL. A row before that was
    not sent decides nothing: what can be decided without it is decided elsewhere.
    """
    lines = ["word = WORDS[op]"]
    if loads[Image.ROW]:
        lines.append("image = before if after is None else after")
    needed = ["before"] if loads[Image.BEFORE] else ["image"] if loads[Image.ROW] else []
    for name in needed:
        lines += [f"if {name} is None and op != INSERT:", "    raise Mismatch"]
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
        "        if op >= ROWLESS_MIN:",
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


def _conditions(expression: Expression) -> Iterator[Expression]:
    """Yield the conditions that must all be true for the whole to be true."""
    if isinstance(expression, Invocation) and expression.name == "AND":
        for operand in expression.operands:
            yield from _conditions(operand)
    else:
        yield expression


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
