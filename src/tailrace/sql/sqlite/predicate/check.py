"""The meaning of a parsed predicate: columns, affinities, collations, and what can never make sense. Pure."""

from itertools import count

from tailrace.model.errors import InvalidPredicateError
from tailrace.model.table import Column, TableSchema
from tailrace.sql.predicate import Image
from tailrace.sql.sqlite.affinity import (
    FOLDS,
    STORED_KINDS,
    Affinity,
    Classes,
    affinity_of_column,
    affinity_of_type,
    classes_of,
    small_letters,
)
from tailrace.sql.sqlite.predicate import syntax
from tailrace.sql.sqlite.predicate.expression import (
    Alias,
    Cell,
    Choice,
    Constant,
    Expression,
    Invocation,
    OpWord,
    Typing,
)
from tailrace.sql.sqlite.predicate.function import FUNCTIONS
from tailrace.sql.sqlite.predicate.syntax import LiteralValue, Node
from tailrace.sql.sqlite.predicate.value import numeric

__all__ = ["COMPARISONS", "check"]


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


COMPARISONS = frozenset({"=", "<>", "<", "<=", ">", ">=", "IS", "IS NOT"})

_NULL_YIELDS_NULL = COMPARISONS - {"IS", "IS NOT"}
_ARITHMETIC = frozenset({"+", "-", "*", "/", "%", "-x"})
_BITS = frozenset({"&", "|", "<<", ">>", "~x"})
_BOOLEAN = Classes.NULL | Classes.INTEGER
_AGGREGATES = frozenset({"count", "sum", "total", "avg", "group_concat", "string_agg", "median"})
_CHANGING = frozenset(
    {"random", "randomblob", "changes", "total_changes", "last_insert_rowid", "date", "time", "datetime"}
    | {"julianday", "unixepoch", "strftime", "timediff", "sqlite_version"}
)


def check(node: Node, schema: TableSchema, text: str) -> Expression:
    """Return the expression that a parsed predicate means for a table.

    Raises:
        InvalidPredicateError: It names what is not there, calls what is not allowed, or can never make sense.
    """
    return _Check(schema, text).condition(node)


class _Check:
    """One walk over a predicate."""

    def __init__(self, schema: TableSchema, text: str) -> None:
        self._schema = schema
        self._text = text
        self._aliases = count(1)

    def condition(self, node: Node) -> Expression:
        """Check a part that is used as a condition."""
        expression = self.value(node)
        declared = expression.typing.declared & ~Classes.NULL
        if declared and not declared & Classes.NUMBER:
            raise self._error(f"{describe(expression)} is {class_words(declared)}, not a condition", node)
        return expression

    def value(self, node: Node) -> Expression:
        """Check a part that is used for its value."""
        match node:
            case syntax.SqlLiteral(value, place):
                return _constant(value, place)
            case syntax.SqlName():
                return self._name(node)
            case syntax.SqlOperation():
                return self._operation(node)
            case syntax.Function():
                return self._function(node)
            case syntax.Case():
                return self._case(node)
            case syntax.Cast():
                return self._cast(node)
            case syntax.Collate():
                return self._collate(node)

    def _name(self, node: syntax.SqlName) -> Expression:
        *qualifiers, name = node.parts
        column = self._column(name)
        if len(qualifiers) > 1:
            raise self._error(f"{'.'.join(node.parts)} has too many parts: write before.column or after.column", node)
        if column is None:
            return self._other_name(node)
        qualifier = qualifiers[0].lower() if qualifiers else ""
        if qualifier in {Image.BEFORE, Image.AFTER}:
            return self._cell(Image(qualifier), column, node.place)
        if qualifier not in {"", self._schema.table.name.lower()}:
            raise self._error(f"{qualifiers[0]} is not before, after or the table {self._schema.table.name}", node)
        return self._cell(Image.ROW, column, node.place)

    def _other_name(self, node: syntax.SqlName) -> Expression:
        """Give a name that is no column its meaning: TRUE, FALSE, op, or none."""
        word = node.parts[0].lower() if len(node.parts) == 1 and not node.quoted else ""
        if word in {"true", "false"}:
            return _constant(int(word == "true"), node.place)
        if word == "op":
            return OpWord(Typing(Classes.TEXT), node.place)
        name = node.parts[-1]
        hint = f"; a text is written '{name}'" if node.quoted else ""
        near = [column.name for column in self._schema.columns][:20]
        raise self._error(f"no column {name} in table {self._schema.table.wire}{hint}; it has {', '.join(near)}", node)

    def _column(self, name: str) -> Column | None:
        """Return the column of a name, case-insensitively."""
        lowered = small_letters(name)
        return next((column for column in self._schema.columns if small_letters(column.name) == lowered), None)

    def _cell(self, image: Image, column: Column, place: int) -> Cell:
        if column.kind not in STORED_KINDS:
            reason = f"column {column.name} is of kind {column.kind}, which SQLite cannot compare as its database does"
            raise InvalidPredicateError(reason, text=self._text, place=place)
        affinity = affinity_of_column(column)
        collation = column.collation or "BINARY"
        collation = collation if collation in FOLDS else ""
        return Cell(image, column.name, Typing(classes_of(column, affinity), affinity, collation), place)

    def _collate(self, node: syntax.Collate) -> Expression:
        value = self.value(node.value)
        if node.collation not in FOLDS:
            raise self._error(f"unknown collation {node.collation}; there are {', '.join(FOLDS)}", node)
        typing = Typing(value.typing.declared, value.typing.affinity, value.typing.implicit, node.collation)
        return Invocation("COLLATE", (value,), typing, node.place)

    def _operation(self, node: syntax.SqlOperation) -> Expression:
        operator, place = node.operator, node.place
        if operator in {"AND", "OR", "NOT"}:
            parts = tuple(self.condition(operand) for operand in node.operands)
            return Invocation(operator, parts, Typing(_BOOLEAN, explicit=_explicit(parts)), place)
        operands = tuple(self.value(operand) for operand in node.operands)
        if operator in COMPARISONS:
            return self._compare(operator, operands[0], operands[1], place)
        match operator:
            case "BETWEEN":
                return self._between(operands, place)
            case "IN":
                return self._in(operands, place)
            case "LIKE" | "GLOB":
                return self._like(operator, operands, place)
            case "+x":
                typing = operands[0].typing
                return Invocation(
                    "+x", operands, Typing(typing.declared, Affinity.NONE, typing.implicit, typing.explicit), place
                )
            case _:
                return self._computed(operator, operands, place)

    def _computed(self, operator: str, operands: tuple[Expression, ...], place: int) -> Expression:
        for operand in operands:
            if operator == "||":
                self._refuse_real(operand)
            elif (
                not operand.typing.declared & ~(Classes.NULL | Classes.BLOB) and operand.typing.declared & Classes.BLOB
            ):
                raise self._error(
                    f"{describe(operand)} is a blob: {operator.rstrip('x')} computes with numbers", operand
                )
        declared = Classes.NULL | Classes.TEXT
        if operator in _BITS:
            declared = Classes.NULL | Classes.INTEGER
        elif operator in _ARITHMETIC:
            integers = all(not operand.typing.declared & ~_BOOLEAN for operand in operands)
            declared = Classes.NULL | (Classes.INTEGER if integers else Classes.NUMBER)
        return Invocation(operator, operands, Typing(declared, explicit=_explicit(operands)), place)

    def _compare(self, operator: str, one: Expression, other: Expression, place: int) -> Expression:
        if operator in {"IS", "IS NOT"} and isinstance(other, Constant) and other.value is None:
            return Invocation(operator, (one, other), Typing(Classes.INTEGER, explicit=one.typing.explicit), place)
        if operator in {"IS", "IS NOT"} and self._is_truth(other):
            return self._truth(operator, one, other, place)
        affinity = _comparison_affinity(one.typing.affinity, other.typing.affinity)
        collation = self._collation((one, other))
        self._refuse_senseless(operator, one, other, affinity)
        declared = Classes.INTEGER if operator in {"IS", "IS NOT"} else _BOOLEAN
        typing = Typing(declared, explicit=_explicit((one, other)))
        return Invocation(operator, (one, other), typing, place, affinity, collation)

    def _is_truth(self, expression: Expression) -> bool:
        """Tell whether an expression is the word TRUE or FALSE, as opposed to 1 or 0."""
        if not isinstance(expression, Constant):
            return False
        return self._text[expression.place : expression.place + 1] in {"t", "T", "f", "F"}

    def _truth(self, operator: str, one: Expression, other: Expression, place: int) -> Expression:
        assert isinstance(other, Constant)
        name = f"{operator} {'TRUE' if other.value else 'FALSE'}"
        return Invocation(name, (one,), Typing(Classes.INTEGER, explicit=one.typing.explicit), place)

    def _between(self, operands: tuple[Expression, ...], place: int) -> Expression:
        value, lower, upper = operands
        alias = Alias(next(self._aliases), value.typing, value.place)
        above = self._compare(">=", alias, lower, place)
        below = self._compare("<=", alias, upper, place)
        return Invocation(
            "BETWEEN", (value, alias, above, below), Typing(_BOOLEAN, explicit=_explicit(operands)), place
        )

    def _in(self, operands: tuple[Expression, ...], place: int) -> Expression:
        value, *options = operands
        if any(option.typing.explicit for option in options):
            raise self._error("COLLATE belongs on the left side of IN", options[0])
        affinity = value.typing.affinity
        for option in options:
            self._refuse_senseless("IN", value, option, affinity)
        collation = self._collation((value,))
        typing = Typing(_BOOLEAN, explicit=value.typing.explicit)
        return Invocation("IN", operands, typing, place, affinity, collation)

    def _like(self, operator: str, operands: tuple[Expression, ...], place: int) -> Expression:
        for operand in operands[:2]:
            self._refuse_real(operand)
            if not operand.typing.declared & ~(Classes.NULL | Classes.BLOB) and operand.typing.declared & Classes.BLOB:
                raise self._error(f"{describe(operand)} is a blob: {operator} matches text", operand)
        if len(operands) == 3:
            escape = operands[2]
            if not (isinstance(escape, Constant) and isinstance(escape.value, str) and len(escape.value) == 1):
                raise self._error("ESCAPE takes a text of one character", escape)
        explicit = _explicit((operands[1], operands[0], *operands[2:]))
        return Invocation(operator, operands, Typing(_BOOLEAN, explicit=explicit), place)

    def _cast(self, node: syntax.Cast) -> Expression:
        value = self.value(node.value)
        affinity = affinity_of_type(node.type_name)
        if affinity in {Affinity.TEXT, Affinity.BLOB}:
            self._refuse_real(value)
        declared = {
            Affinity.TEXT: Classes.TEXT,
            Affinity.BLOB: Classes.BLOB,
            Affinity.INTEGER: Classes.INTEGER,
            Affinity.REAL: Classes.REAL,
        }.get(affinity, Classes.NUMBER)
        typing = Typing(Classes.NULL | declared, affinity, value.typing.implicit, value.typing.explicit)
        return Invocation(f"CAST {affinity.name}", (value,), typing, node.place)

    def _case(self, node: syntax.Case) -> Expression:
        base = None if node.base is None else self.value(node.base)
        alias = None if base is None else Alias(next(self._aliases), base.typing, base.place)
        branches = []
        for when, then in node.branches:
            condition = (
                self.condition(when) if alias is None else self._compare("=", alias, self.value(when), when.place)
            )
            branches.append((condition, self.value(then)))
        otherwise = _constant(None, node.place) if node.otherwise is None else self.value(node.otherwise)
        declared = otherwise.typing.declared
        for _, then_ in branches:
            declared |= then_.typing.declared
        parts = [part for branch in branches for part in branch]
        typing = Typing(declared, explicit=_explicit(([] if base is None else [base]) + parts + [otherwise]))
        return Choice(base, alias, tuple(branches), otherwise, typing, node.place)

    def _function(self, node: syntax.Function) -> Expression:
        name, number = node.name, len(node.arguments)
        if name in {"iif", "if"} and number in {2, 3}:
            otherwise = node.arguments[2] if number == 3 else None
            return self._case(syntax.Case(None, (node.arguments[:2],), otherwise, node.place, node.height))  # type: ignore[arg-type]
        arguments = tuple(self.value(argument) for argument in node.arguments)
        explicit = _explicit(arguments)
        if (name == "coalesce" and number >= 2) or (name == "ifnull" and number == 2):
            declared = Classes.NULL
            for argument in arguments:
                declared |= argument.typing.declared
            return Invocation("coalesce", arguments, Typing(declared, explicit=explicit), node.place)
        if (name in {"min", "max"} and number >= 2) or (name == "nullif" and number == 2):
            declared = Classes.NULL
            for argument in arguments if name != "nullif" else arguments[:1]:
                declared |= argument.typing.declared
            collation = self._collation(arguments)
            return Invocation(name, arguments, Typing(declared, explicit=explicit), node.place, collation=collation)
        return self._scalar(node, arguments)

    def _scalar(self, node: syntax.Function, arguments: tuple[Expression, ...]) -> Expression:
        function = FUNCTIONS.get(node.name)
        if function is None:
            raise self._unknown_function(node)
        if not function.arguments_min <= len(arguments) <= function.arguments_max:
            raise self._error(f"{node.name}() does not take {len(arguments)} arguments here", node)
        for argument in arguments if function.as_text else ():
            self._refuse_real(argument)
        first = arguments[0].typing.declared
        if (
            function.as_text
            and not function.blob_too
            and first & Classes.BLOB
            and not first & ~(Classes.NULL | Classes.BLOB)
        ):
            raise self._error(f"{describe(arguments[0])} is a blob: {node.name}() takes text", arguments[0])
        declared = function.result
        if node.name.startswith("substr") and not first & Classes.BLOB:
            declared &= ~Classes.BLOB
        return Invocation(node.name, arguments, Typing(declared, explicit=_explicit(arguments)), node.place)

    def _unknown_function(self, node: syntax.Function) -> InvalidPredicateError:
        if node.name in _AGGREGATES or node.name in {"min", "max"}:
            return self._error("aggregates are not allowed", node)
        if node.name in _CHANGING:
            return self._error(
                f"{node.name}() may differ from one call to the next: a predicate hangs on the change alone", node
            )
        known = sorted({*FUNCTIONS, "coalesce", "ifnull", "iif", "nullif", "min", "max"})
        return self._error(f"unknown function {node.name}(); there are {', '.join(known)}", node)

    def _collation(self, operands: tuple[Expression, ...]) -> str:
        """Return the collation of a comparison: the first explicit one, else the first column's (chapter 7.1)."""
        for operand in operands:
            if operand.typing.explicit is not None:
                return operand.typing.explicit
        for operand in operands:
            if operand.typing.implicit == "":
                raise self._error(f"{describe(operand)} has an unknown collation; add COLLATE", operand)
            if operand.typing.implicit is not None:
                return operand.typing.implicit
        return "BINARY"

    def _refuse_real(self, operand: Expression) -> None:
        """Refuse a number that may be real where text is wanted: SQLite's versions write reals in different ways."""
        declared = operand.typing.declared
        if declared & Classes.REAL and not declared & (Classes.TEXT | Classes.BLOB):
            raise self._error(f"{describe(operand)} is a real number and cannot be used as text", operand)

    def _refuse_senseless(self, operator: str, one: Expression, other: Expression, affinity: Affinity) -> None:
        """Refuse a comparison of values that are always of different storage classes, or always NULL."""
        for operand in (one, other):
            if operator in _NULL_YIELDS_NULL and isinstance(operand, Constant) and operand.value is None:
                raise self._error(f"{operator} NULL is never true: write IS NULL or IS NOT NULL", operand)
            if affinity is Affinity.TEXT:
                self._refuse_real(operand)
        left, right = _compared(one, affinity), _compared(other, affinity)
        nulls = one.typing.declared & other.typing.declared & Classes.NULL
        if left and right and not left & right and not (operator in {"IS", "IS NOT"} and nulls):
            raise self._error(
                f"{describe(one)} is {class_words(_real(one))} and {describe(other)} is {class_words(_real(other))}: "
                f"{operator} between them never depends on the values",
                other if isinstance(other, Constant) or not isinstance(one, Constant) else one,
            )

    def _error(self, reason: str, at: Node | Expression) -> InvalidPredicateError:
        return InvalidPredicateError(reason, text=self._text, place=at.place)


def _constant(value: LiteralValue, place: int) -> Constant:
    classes = {int: Classes.INTEGER, float: Classes.REAL, str: Classes.TEXT, bytes: Classes.BLOB}
    return Constant(value, Typing(classes.get(value.__class__, Classes.NULL)), place)


def _explicit(operands: "list[Expression] | tuple[Expression, ...]") -> str | None:
    return next((operand.typing.explicit for operand in operands if operand.typing.explicit is not None), None)


def _comparison_affinity(one: Affinity, other: Affinity) -> Affinity:
    """Return the affinity that a comparison gives to both sides (chapter 4.2)."""
    if one is Affinity.NONE or other is Affinity.NONE:
        return max(one, other)
    return Affinity.NUMERIC if max(one, other) >= Affinity.NUMERIC else Affinity.BLOB


def _compared(operand: Expression, affinity: Affinity) -> Classes:
    """Return the classes of an operand after the affinity; integers and reals count as one."""
    declared = operand.typing.declared & ~Classes.NULL
    if affinity >= Affinity.NUMERIC and declared & Classes.TEXT:
        if isinstance(operand, Constant):
            declared = Classes.TEXT if isinstance(numeric(operand.value), str) else Classes.NUMBER
        else:
            declared |= Classes.NUMBER
    if affinity is Affinity.TEXT and declared & Classes.NUMBER:
        declared = declared & ~Classes.NUMBER | Classes.TEXT
    return declared | Classes.NUMBER if declared & Classes.NUMBER else declared


def _real(operand: Expression) -> Classes:
    return operand.typing.declared & ~Classes.NULL
