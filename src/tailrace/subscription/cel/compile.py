"""CEL predicates and values, by the library `common-expression-language`. Pure.

Variables: `before` and `after` (maps from column to value, or null), `row` (the newer of them), `op` and `table`.
A column that the source did not send is not in its map; see `tailrace.sql.predicate` for what that means.
Nothing is evaluated that could take longer than `cel_cost` allows: a running evaluation cannot be stopped.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

import msgspec

from tailrace.model.errors import InvalidPredicateError, InvalidValueError, PredicateError
from tailrace.model.op import ROWLESS, Op
from tailrace.model.table import Column, Kind, TableSchema
from tailrace.model.value import Array, Item, Text, Value, from_natural, to_plain
from tailrace.sql.predicate import Equality
from tailrace.subscription.cel.cost import ROW_NS_MAX, CelCost, cel_cost
from tailrace.subscription.cel.library import compile_program
from tailrace.subscription.cel.text import IMAGES, read_cel

__all__ = ["CelPredicate", "CelValue", "compile_cel", "compile_cel_value"]

_WORDS = {int(op): op.word for op in Op}

_SAMPLES: dict[Kind, Any] = {
    Kind.BOOL: True,
    Kind.I64: 1,
    Kind.U64: 1,
    Kind.F64: 1.5,
    Kind.DEC: "1.5",
    Kind.STR: "a",
    Kind.BYTES: b"a",
    Kind.DATE: "2000-01-01",
    Kind.TIME: "00:00:00",
    Kind.DATETIME: "2000-01-01T00:00:00Z",
    Kind.UUID: "00000000-0000-0000-0000-000000000000",
    Kind.INTERVAL: "1 day",
    Kind.ENUM: "a",
    Kind.BIT: "1",
    Kind.NETWORK: "192.0.2.1",
    Kind.RANGE: "[1,2)",
    Kind.COMPOSITE: "(1)",
    Kind.FOREIGN: "a",
    Kind.GEOMETRY: b"a",
}
"""A value of each kind whose CEL type is known beforehand; see `_sample` for arrays."""

_FAILURES: tuple[tuple[type[Exception], str], ...] = (
    (TypeError, "an operation is not defined for the types that it met, perhaps null"),
    (ZeroDivisionError, "division by zero"),
    (OverflowError, "an integer beyond 64 bits"),
    (KeyError, "a map has no such key"),
    (IndexError, "a list has no such place"),
)
"""What to say of the library's errors; their own texts may hold values of the row."""


def compile_cel(text: str, schema: TableSchema) -> "CelPredicate":
    """Return the predicate that a CEL expression over a table's changes is.

    Raises:
        InvalidPredicateError: It cannot be read, names what is not there, or its types cannot fit.
    """
    used = read_cel(text, schema)
    execute = _compiled(text)
    cost = cel_cost(used.tree, text)
    names = [column.name for column in schema.columns] if used.whole else sorted(used.columns)
    columns = [column for column in schema.columns if column.name in names]
    _refuse_types(execute, used.variables, columns, schema, text)
    return CelPredicate(execute, used.variables, columns, schema, used.canonical, cost)


class CelPredicate:
    """A compiled CEL expression; see `tailrace.sql.predicate.Predicate`."""

    __slots__ = ("_cost", "_decode", "_execute", "_table", "_variables", "canonical", "columns", "costly", "equalities")

    def __init__(
        self,
        execute: Callable[[dict[str, Any]], Any],
        variables: frozenset[str],
        columns: Sequence[Column],
        schema: TableSchema,
        canonical: str,
        cost: CelCost,
    ) -> None:
        self.canonical = f"cel:{schema.version}:{canonical}"
        self.columns = frozenset(column.name for column in columns)
        self.equalities: tuple[Equality, ...] = ()
        self.costly = True
        self._cost = cost
        self._execute = execute
        self._variables = variables
        self._decode = _image_reader(columns)
        self._table = schema.table.wire

    def select(self, ops: Sequence[int], befores: Sequence[bytes | None], afters: Sequence[bytes | None]) -> list[bool]:
        """Tell for each change whether it passes.

        Raises:
            PredicateError: It failed on one of them.
        """
        return [
            op in ROWLESS or self._passes(op, before, after)
            for op, before, after in zip(ops, befores, afters, strict=True)
        ]

    def _passes(self, op: int, before: bytes | None, after: bytes | None) -> bool:
        used = self._variables
        _refuse_large(self._cost, *(image for image in (before, after) if image is not None))
        variables: dict[str, Any] = {}
        if "op" in used:
            variables["op"] = _WORDS[op]
        if "table" in used:
            variables["table"] = self._table
        new = None if after is None or not used & _NEWER else self._decode(after)
        lacking = new is not None and len(new) < len(self.columns)
        old = self._decode(before) if before is not None and (lacking or after is None or "before" in used) else None
        if new is not None and old is not None and lacking:
            new = {**old, **new}  # what an update does not send has not changed
        for name, row in (("row", old if new is None else new), ("before", old), ("after", new)):
            if name in used:
                if op != Op.INSERT and row is None and name != "after":
                    return True  # undecided: the row before was not sent
                if row is not None and len(row) < len(self.columns):
                    return True  # undecided: nor was one of its cells
                variables[name] = row
        result = _evaluate(self._execute, variables)
        if result is not True and result is not False:
            raise PredicateError("the result is not a boolean")
        return result


def compile_cel_value(text: str, schema: TableSchema) -> "CelValue":
    """Return the value that a CEL expression over one row of a table is.

    Raises:
        InvalidPredicateError: It cannot be read, names what is not there or both images, or its types cannot fit.
    """
    used = read_cel(text, schema)
    if used.variables & {"before", "after"}:
        reason = "a value is computed of each image by itself: write row, not before or after"
        raise InvalidPredicateError(reason, text=text, place=0)
    execute = _compiled(text)
    cost = cel_cost(used.tree, text)
    columns = [column for column in schema.columns if used.whole or column.name in used.columns]
    sample = _sampled(execute, used.variables, columns, schema, text)
    return CelValue(execute, used.variables, columns, schema, _KINDS.get(type(sample), Kind.ANY), cost)


class CelValue:
    """A compiled CEL expression over one row.

    `kind` is what its values are, as far as that is known beforehand; `columns` are those that it reads.
    """

    __slots__ = ("_cost", "_decode", "_execute", "_table", "_variables", "columns", "kind")

    def __init__(
        self,
        execute: Callable[[dict[str, Any]], Any],
        variables: frozenset[str],
        columns: Sequence[Column],
        schema: TableSchema,
        kind: Kind,
        cost: CelCost,
    ) -> None:
        self.kind = kind
        self.columns = frozenset(column.name for column in columns)
        self._cost = cost
        self._execute = execute
        self._variables = variables
        self._decode = _image_reader(columns)
        self._table = schema.table.wire

    def of(self, op: Op, image: bytes) -> Value:
        """Return the value of a row.

        Raises:
            PredicateError: It failed, or the source did not send one of the columns.
        """
        variables: dict[str, Any] = {}
        _refuse_large(self._cost, image)
        if "row" in self._variables:
            row = variables["row"] = self._decode(image)
            if len(row) < len(self.columns):
                raise PredicateError("the source did not send a column that it reads")
        if "op" in self._variables:
            variables["op"] = _WORDS[op]
        if "table" in self._variables:
            variables["table"] = self._table
        return _plain_value(_evaluate(self._execute, variables))


_KINDS = {
    bool: Kind.BOOL,
    int: Kind.I64,
    float: Kind.F64,
    str: Kind.STR,
    bytes: Kind.BYTES,
    list: Kind.JSON,
    dict: Kind.JSON,
}
"""Kinds of the results of CEL; of all others the values themselves tell."""


def _plain_value(result: Any) -> Value:
    """Return what CEL computed as a value of a cell: lists and maps are JSON, times are text."""
    match result:
        case None | bool() | int() | float() | str() | bytes():
            return result
        case list() | dict():
            try:
                return Text(Kind.JSON, msgspec.json.encode(result).decode())
            except (TypeError, ValueError) as error:
                raise PredicateError("the result cannot be written as JSON") from error
        case _:
            return str(result)


def _refuse_large(cost: CelCost, *images: bytes) -> None:
    """Refuse a row for which the expression could take too long.

    Raises:
        PredicateError: It could.
    """
    elements = sum(image.count(sign) for image in images for sign in (b",", b"[", b"{"))
    if not cost.fits(sum(map(len, images)), elements):
        raise PredicateError(
            f"a row is so large that the expression could take more than {ROW_NS_MAX // 1_000_000} ms: "
            "look at fewer or smaller columns, without map() and filter(), or say it in a `where`"
        )


def _compiled(text: str) -> Callable[[dict[str, Any]], Any]:
    try:
        return compile_program(text)
    except ValueError as error:
        raise _syntax_error(str(error), text) from error


def _evaluate(execute: Callable[[dict[str, Any]], Any], variables: dict[str, Any]) -> Any:
    try:
        return execute(variables)
    except Exception as error:
        reasons = (reason for kind, reason in _FAILURES if isinstance(error, kind))
        raise PredicateError(next(reasons, "a conversion or a call failed")) from error
    except BaseException as error:
        if type(error).__name__ == "PanicException":  # a fault within the library's native code
            raise PredicateError("the expression cannot be evaluated") from error
        raise


def _image_reader(columns: Sequence[Column]) -> Callable[[bytes], Mapping[str, Any]]:
    """Return a function that reads those of these columns that an image has, as values for CEL."""
    decode = msgspec.json.Decoder(dict[str, Any]).decode
    converted = [(column.name, column, column.kind in _CONVERTED) for column in columns]

    def read(image: bytes) -> Mapping[str, Any]:
        try:
            cells = decode(image)
        except msgspec.DecodeError as error:
            raise PredicateError("an image is not valid JSON") from error
        found = {}
        for name, column, is_converted in converted:
            cell: Any = cells.get(name, _UNSENT)
            if cell is _UNSENT:
                continue
            if cell.__class__ in _COMPOUND or (is_converted and cell.__class__ is str):
                cell = _cel_value(cell, column)
            found[name] = cell
        return found

    return read


_CONVERTED = frozenset({Kind.BYTES, Kind.GEOMETRY, Kind.JSON})
"""Kinds whose JSON string is not what CEL is to see."""

_COMPOUND: frozenset[type] = frozenset({dict, list})


def _cel_value(natural: Any, column: Column) -> Any:
    try:
        return _shown(from_natural(natural, column))
    except InvalidValueError as error:
        raise PredicateError("a cell is not of the natural form") from error


def _shown(value: Item) -> Any:
    """Return what CEL sees of a value: an array is a list, whose first place is 0 for any lower bound."""
    match value:
        case Array(items):
            return [_shown(item) for item in items]
        case tuple():
            return [_shown(item) for item in value]
        case Text(Kind.JSON):
            return to_plain(value)
        case Text(_, text):
            return text
        case Decimal():
            return str(value)
        case _:
            return value


def _syntax_error(message: str, text: str) -> InvalidPredicateError:
    """Return our error for the library's, at the place that it names."""
    found = re.search(r"<input>:(\d+):(\d+): (?:Syntax error: )?([^\n]*)", message)
    if found is None:
        return InvalidPredicateError("the expression cannot be read", text=text, place=0)
    lines = text.split("\n")[: int(found[1]) - 1]
    place = sum(len(line) + 1 for line in lines) + int(found[2]) - 1
    return InvalidPredicateError(found[3].partition(" expecting {")[0], text=text, place=place)


def _refuse_types(
    execute: Callable[[dict[str, Any]], Any],
    variables: frozenset[str],
    columns: Sequence[Column],
    schema: TableSchema,
    text: str,
) -> None:
    """Refuse what is no condition on an update with a value of each column's kind."""
    result = _sampled(execute, variables, columns, schema, text)
    if result is not _UNKNOWN and not isinstance(result, bool):
        raise InvalidPredicateError("the expression is not a condition: its result is no boolean", text=text, place=0)


_NEWER = frozenset({"row", "after"})

_UNSENT = object()
"""Stands for a cell that an image does not have."""

_UNKNOWN = object()
"""Stands for a result that only a row can tell."""


def _sample(column: Column) -> Any:
    """Return a value of a column for CEL; unknown where its type is not known, as of an array of any dimensions."""
    if column.kind is not Kind.ARRAY:
        return _SAMPLES.get(column.kind, _UNKNOWN)
    made = _UNKNOWN if column.element is None or not column.dimensions else _sample(column.element)
    for _ in range(0 if made is _UNKNOWN else column.dimensions):
        made = [made]
    return made


def _sampled(
    execute: Callable[[dict[str, Any]], Any],
    variables: frozenset[str],
    columns: Sequence[Column],
    schema: TableSchema,
    text: str,
) -> Any:
    """Return the result for an update with a value of each column's kind; refuse what cannot fit.

    Columns without one type are left to run time, and so is whatever else may fail.
    """
    image = {column.name: _sample(column) for column in columns}
    if _UNKNOWN in image.values():
        return _UNKNOWN
    every = {"before": image, "after": image, "row": image, "op": Op.UPDATE.word, "table": schema.table.wire}
    try:
        return _evaluate(execute, {name: every[name] for name in variables})
    except PredicateError as error:
        if not variables & IMAGES:
            raise InvalidPredicateError(f"it always fails: {error.reason}", text=text, place=0) from error
        if isinstance(error.__cause__, TypeError):
            kinds = ", ".join(f"{column.name} is {column.kind}" for column in columns)
            reason = f"the types do not fit ({kinds})" if kinds else "the types do not fit"
            raise InvalidPredicateError(reason, text=text, place=0) from error
        return _UNKNOWN
