"""Python source for a checked expression. Pure.

A part is written in one of three ways: for its **value**, or as a Python condition that holds when the part is
**true**, or when it is **false**. So three-valued logic costs nothing where only truth is asked for:
`a > 1 AND b = 'x'` becomes `(a is not None and a > 1 and b == 'x')`. What the storage classes of the columns leave
open at compile time is left to the functions of `tailrace.sql.sqlite.predicate.value`.
"""

import math
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from tailrace.sql.predicate import Image, SqlValue
from tailrace.sql.sqlite.affinity import FOLDS, Affinity, Classes
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
from tailrace.sql.sqlite.predicate.library import LIBRARY, OPERATOR_NAMES, folded, with_affinity
from tailrace.sql.sqlite.predicate.pattern import glob_matcher, like_matcher
from tailrace.sql.sqlite.predicate.value import OPERATORS

__all__ = ["Emitter", "PythonCode"]

_NULL = Classes.NULL
_BOOLEAN = Classes.NULL | Classes.INTEGER
_NUMBER = Classes.NULL | Classes.NUMBER
_OPPOSITE = {"=": "<>", "<>": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">", "IS": "IS NOT", "IS NOT": "IS"}
_TESTS = frozenset({*_OPPOSITE, "IN", "BETWEEN", "LIKE", "GLOB", "IS TRUE", "IS FALSE", "IS NOT TRUE", "IS NOT FALSE"})
_PYTHON = {"=": "==", "<>": "!=", "IS": "==", "IS NOT": "!="}
_EQUALITIES = frozenset(_PYTHON)
_INLINE = frozenset({"+", "-", "*"})
_TYPING = Typing(Classes.ALL)
_ONE_CLASS = (Classes.NUMBER, Classes.TEXT, Classes.BLOB)
_OPERATOR_RESULTS = {"||": _NULL | Classes.TEXT, **dict.fromkeys(["&", "|", "<<", ">>", "~x"], _BOOLEAN)}
_CAST_RESULTS = {"NUMERIC": Classes.NUMBER, "BLOB": Classes.BLOB, "TEXT": Classes.TEXT}
_CAST_RESULTS |= {"INTEGER": Classes.INTEGER, "REAL": Classes.REAL}


class PythonCode(Struct, frozen=True):
    """A Python expression, the storage classes of its value, and whether it may be written twice."""

    text: str
    classes: Classes
    simple: bool = False

    @property
    def nullable(self) -> bool:
        """Tell whether the value may be None."""
        return bool(self.classes & _NULL)


class Emitter:
    """Writes one expression; `cells` says under which local name each cell is found and of which classes it is.

    The source refers to `names`, which is to be its global namespace.
    """

    def __init__(self, cells: Mapping[tuple[Image, str], PythonCode]) -> None:
        self._cells = cells
        self._aliases: dict[int, PythonCode] = {}
        self._locals = 0
        self.names: dict[str, Any] = dict(LIBRARY)

    def true(self, expression: Expression) -> str:
        """Return a condition that holds when the expression is true."""
        return self._test(expression, wanted=True)

    def value(self, expression: Expression) -> PythonCode:
        """Return the expression's value."""
        match expression:
            case Constant(constant):
                return self._constant(constant)
            case Cell(image, column):
                return self._cells[image, column]
            case OpWord():
                return PythonCode("word", Classes.TEXT, simple=True)
            case Alias(number):
                return self._aliases[number]
            case Choice():
                return self._choice(expression)
            case Invocation():
                return self._invocation(expression)

    def _invocation(self, part: Invocation) -> PythonCode:
        name, operands = part.name, part.operands
        if name in {"COLLATE", "+x"}:
            return self.value(operands[0])
        if name in {"AND", "OR", "NOT"}:
            arguments = ", ".join(self.value(operand).text for operand in operands)
            return PythonCode(f"{name.lower()}3({arguments})", _BOOLEAN)
        if name in _TESTS:
            return self._flag(part)
        if name in _INLINE or name in OPERATORS:
            return self._computed(name, [self.value(operand) for operand in operands])
        if name == "coalesce":
            return self._coalesce([self.value(operand) for operand in operands])
        codes = [self.value(operand) for operand in operands]
        arguments = ", ".join(code.text for code in codes)
        if name.startswith("CAST "):
            result = _CAST_RESULTS[name[5:]] | _NULL
            return PythonCode(f"cast_{name[5:].lower()}({arguments})", result)
        if name == "nullif":
            return PythonCode(f"null_if({arguments}, {self._fold(part)})", codes[0].classes | _NULL)
        if name in {"min", "max"}:
            classes = Classes(0)
            for code in codes:
                classes |= code.classes
            return PythonCode(f"extreme({-1 if name == 'min' else 1}, {self._fold(part)}, {arguments})", classes)
        return PythonCode(f"f_{name}({arguments})", FUNCTIONS[name].result)

    def _test(self, part: Expression, *, wanted: bool) -> str:
        """Return a condition that holds when the expression is true, or when it is false."""
        if isinstance(part, Invocation):
            if part.name in {"AND", "OR"}:
                word = " and " if (part.name == "AND") is wanted else " or "
                return f"({word.join(self._test(operand, wanted=wanted) for operand in part.operands)})"
            if part.name == "NOT":
                return self._test(part.operands[0], wanted=not wanted)
            if part.name in _TESTS:
                return self._special_test(part, wanted=wanted)
        code = self.value(part)
        if code.classes & (Classes.TEXT | Classes.BLOB):
            return f"truth({code.text})" if wanted else f"(truth({code.text}) is False)"
        return code.text if wanted else f"({code.text} == 0)"

    def _special_test(self, part: Invocation, *, wanted: bool) -> str:
        match part.name:
            case "IN":
                return self._in(part, wanted=wanted)
            case "BETWEEN":
                return self._between(part, wanted=wanted)
            case "LIKE" | "GLOB":
                return self._like(part, wanted=wanted)
            case "IS TRUE" | "IS FALSE" | "IS NOT TRUE" | "IS NOT FALSE":
                return self._truth_test(part, wanted=wanted)
            case _:
                return self._compare(part, wanted=wanted)

    def _flag(self, part: Invocation) -> PythonCode:
        """Return the value of a test: 1, 0 or NULL. Every operand is written once, so the source stays short."""
        match part.name:
            case "LIKE" | "GLOB":
                return PythonCode(f"flag({self._match(part, self.value(part.operands[0]))})", _BOOLEAN)
            case "BETWEEN":
                begin, above, below = self._halves(part)
                return PythonCode(
                    self._after(begin, f"and3({self.value(above).text}, {self.value(below).text})"), _BOOLEAN
                )
            case "IN":
                return self._flag_in(part)
            case "=" | "<>" | "<" | "<=" | ">" | ">=":
                return self._flag_compared(part)
            case _:
                return PythonCode(f"(1 if {self._test(part, wanted=True)} else 0)", Classes.INTEGER)

    def _flag_compared(self, part: Invocation) -> PythonCode:
        one, other = self._sides(part)
        guards, names = self._guard([one, other])
        holds = self._relation(part, part.name, names[0], names[1], one.classes, other.classes)
        if not guards:
            return PythonCode(f"(1 if {holds} else 0)", Classes.INTEGER)
        nulls = " or ".join(f"{guard} is None" for guard in guards)
        return PythonCode(f"(None if {nulls} else 1 if {holds} else 0)", _BOOLEAN)

    def _flag_in(self, part: Invocation) -> PythonCode:
        members = self._members(part)
        if members is None:
            begin, tests = self._each(part)
            return PythonCode(
                self._after(begin, f"or3({', '.join(self.value(test).text for test in tests)})"), _BOOLEAN
            )
        left, known, missing = members
        guards, names = self._guard([left])
        found = f"1 if {names[0]} in {known} else {None if missing else 0}"
        return PythonCode(f"(None if {guards[0]} is None else {found})" if guards else f"({found})", _BOOLEAN)

    def _compare(self, part: Invocation, *, wanted: bool) -> str:
        operator = part.name if wanted else _OPPOSITE[part.name]
        if operator in {"IS", "IS NOT"} and isinstance(part.operands[1], Constant) and part.operands[1].value is None:
            asked = self.value(part.operands[0])
            return f"({asked.text} {operator.lower()} None)" if asked.nullable else str(operator == "IS NOT")
        one, other = self._sides(part)
        if operator in {"IS", "IS NOT"} or (operator == "=" and not (one.nullable and other.nullable)):
            return f"({self._relation(part, operator, one.text, other.text, one.classes, other.classes)})"
        guards, names = self._guard([one, other])
        holds = self._relation(part, operator, names[0], names[1], one.classes, other.classes)
        return f"({' and '.join([*(f'{guard} is not None' for guard in guards), holds])})"

    def _sides(self, part: Invocation) -> tuple[PythonCode, PythonCode]:
        """Return both sides of a comparison after its affinity."""
        one, other = (self._converted(operand, part.affinity) for operand in part.operands)
        return one, other

    def _converted(self, operand: Expression, affinity: Affinity) -> PythonCode:
        if isinstance(operand, Constant):
            return self._constant(with_affinity(operand.value, affinity))
        code = self.value(operand)
        if affinity >= Affinity.NUMERIC and code.classes & Classes.TEXT:
            return PythonCode(f"numeric({code.text})", code.classes | Classes.NUMBER)
        if affinity is Affinity.TEXT and code.classes & Classes.NUMBER:
            return PythonCode(f"textual({code.text})", code.classes & ~Classes.NUMBER | Classes.TEXT)
        return code

    def _relation(self, part: Invocation, operator: str, one: str, other: str, left: Classes, right: Classes) -> str:
        """Return the comparison of two values; where order matters neither is None."""
        python = _PYTHON.get(operator, operator)
        texts = left & right & Classes.TEXT
        if part.collation != "BINARY" and texts:
            fold = self._fold(part)
            if operator in _EQUALITIES:
                return f"{'not ' if python == '!=' else ''}same({one}, {other}, {fold})"
            return f"order({one}, {other}, {fold}) {python} 0"
        classes = (left | right) & ~_NULL
        if operator in _EQUALITIES or any(not classes & ~one_class for one_class in _ONE_CLASS):
            return f"{one} {python} {other}"
        return f"order({one}, {other}) {python} 0"

    def _truth_test(self, part: Invocation, *, wanted: bool) -> str:
        """Write IS [NOT] TRUE and IS [NOT] FALSE."""
        asked = self._test(part.operands[0], wanted=part.name.endswith("TRUE"))
        return asked if wanted is not part.name.startswith("IS NOT") else f"(not {asked})"

    def _between(self, part: Invocation, *, wanted: bool) -> str:
        begin, above, below = self._halves(part)
        word = " and " if wanted else " or "
        both = word.join([self._test(above, wanted=wanted), self._test(below, wanted=wanted)])
        return self._after(begin, f"({both})")

    def _halves(self, part: Invocation) -> tuple[str, Expression, Expression]:
        """Return an assignment of the value that is between, and its two comparisons."""
        value, alias, above, below = part.operands
        assert isinstance(alias, Alias)
        begin, bound = self._bind(self.value(value))
        self._aliases[alias.number] = self._aliases[bound.number]
        return begin, above, below

    def _in(self, part: Invocation, *, wanted: bool) -> str:
        members = self._members(part)
        if members is None:
            begin, tests = self._each(part)
            word = " or " if wanted else " and "
            return self._after(begin, f"({word.join(self._test(test, wanted=wanted) for test in tests)})")
        left, known, missing = members
        if wanted:
            return f"({left.text} in {known})"
        if missing:
            return "False"
        guards, names = self._guard([left])
        return f"({' and '.join([*(f'{guard} is not None' for guard in guards), f'{names[0]} not in {known}'])})"

    def _members(self, part: Invocation) -> tuple[PythonCode, str, bool] | None:
        """Return the left side of IN, the name of the set of its options, and whether NULL is one of them.

        None where some are not constant.
        """
        value, *options = part.operands
        constants = [option.value for option in options if isinstance(option, Constant)]
        if len(constants) < len(options):
            return None
        members = [with_affinity(constant, part.affinity) for constant in constants]
        left = self._converted(value, part.affinity)
        if part.collation != "BINARY":
            members = [folded(member, FOLDS[part.collation]) for member in members]
            left = PythonCode(f"folded({left.text}, {self._fold(part)})", left.classes)
        known = self._name(frozenset(member for member in members if member is not None))
        return left, known, None in members

    def _each(self, part: Invocation) -> tuple[str, list[Invocation]]:
        """Return an assignment of the left side of IN, and its comparison with each option."""
        value, *options = part.operands
        begin, alias = self._bind(self.value(value))
        return begin, [
            Invocation("=", (alias, option), part.typing, part.place, part.affinity, part.collation)
            for option in options
        ]

    def _like(self, part: Invocation, *, wanted: bool) -> str:
        left = self.value(part.operands[0])
        call = self._match(part, left)
        if not call.startswith("match_value(") or left.classes & ~(_NULL | Classes.TEXT):
            return call if wanted else f"({call} is False)"
        guards, names = self._guard([left])
        matcher = call[len("match_value(") : call.index(",")]
        holds = f"{'' if wanted else 'not '}{matcher}({names[0]})"
        return f"({' and '.join([*(f'{guard} is not None' for guard in guards), holds])})"

    def _match(self, part: Invocation, left: PythonCode) -> str:
        """Return a call that says whether a value matches: True, False or None."""
        _, pattern, *rest = part.operands
        escape = rest[0].value if rest and isinstance(rest[0], Constant) else ""
        if not isinstance(pattern, Constant):
            right = self.value(pattern).text
            return f"glob({left.text}, {right})" if part.name == "GLOB" else f"like({left.text}, {right}, {escape!r})"
        if pattern.value is None:
            return f"like({left.text}, None)"
        text = str(pattern.value)
        matcher = glob_matcher(text) if part.name == "GLOB" else like_matcher(text, str(escape))
        return f"match_value({self._name(matcher)}, {left.text})"

    def _choice(self, part: Choice) -> PythonCode:
        begin = ""
        if part.base is not None and part.alias is not None:
            begin, bound = self._bind(self.value(part.base))
            self._aliases[part.alias.number] = self._aliases[bound.number]
        otherwise = self.value(part.otherwise)
        classes, text = otherwise.classes, ""
        for condition, result in part.branches:
            code = self.value(result)
            classes |= code.classes
            text += f"{code.text} if {self.true(condition)} else "
        return PythonCode(self._after(begin, f"({text}{otherwise.text})"), classes)

    def _coalesce(self, codes: list[PythonCode]) -> PythonCode:
        classes, text = Classes(0), ""
        for code in codes[:-1]:
            guards, names = self._guard([code])
            text += f"{names[0]} if {guards[0]} is not None else " if guards else f"{names[0]} if True else "
            classes |= code.classes & ~_NULL
        return PythonCode(f"({text}{codes[-1].text})", classes | codes[-1].classes)

    def _computed(self, operator: str, codes: list[PythonCode]) -> PythonCode:
        name = OPERATOR_NAMES[operator]
        arguments = ", ".join(code.text for code in codes)
        if operator not in _INLINE or any(code.classes & ~_NUMBER for code in codes):
            return PythonCode(f"{name}({arguments})", _OPERATOR_RESULTS.get(operator, _NUMBER))
        guards, (one, other) = self._guard(
            [code if code.simple else PythonCode(code.text, code.classes | _NULL) for code in codes]
        )
        self._locals += 1
        result = f"t{self._locals}"
        sum_ = f"{result} if MIN <= ({result} := {one} {operator} {other}) <= MAX else {name}({one}, {other})"
        nulls = " or ".join(f"{guard} is None" for guard in guards)
        return PythonCode(f"(None if {nulls} else {sum_})" if guards else f"({sum_})", _NUMBER)

    def _guard(self, codes: list[PythonCode]) -> tuple[list[str], list[str]]:
        """Return what to test for None, and under which names the values are found after that."""
        guards, names = [], []
        for code in codes:
            if not code.nullable or code.simple:
                guards += [code.text] if code.nullable else []
                names.append(code.text)
                continue
            self._locals += 1
            guards.append(f"(t{self._locals} := {code.text})")
            names.append(f"t{self._locals}")
        return guards, names

    def _bind(self, code: PythonCode) -> tuple[str, Alias]:
        """Return an assignment, empty where none is needed, and an alias for the value."""
        number = -1 - len(self._aliases)
        if code.simple:
            self._aliases[number] = code
            return "", Alias(number, _TYPING, 0)
        self._locals += 1
        self._aliases[number] = PythonCode(f"t{self._locals}", code.classes, simple=True)
        return f"(t{self._locals} := {code.text})", Alias(number, _TYPING, 0)

    def _after(self, begin: str, text: str) -> str:
        return f"({begin}, {text})[1]" if begin else text

    def _constant(self, constant: SqlValue) -> PythonCode:
        classes = {int: Classes.INTEGER, float: Classes.REAL, str: Classes.TEXT, bytes: Classes.BLOB}
        found = classes.get(constant.__class__, _NULL)
        if isinstance(constant, float) and math.isinf(constant):
            return PythonCode(self._name(constant), found, simple=True)
        return PythonCode(
            f"({constant!r})" if isinstance(constant, int | float) else repr(constant), found, simple=True
        )

    def _fold(self, part: Invocation) -> str:
        return f"fold_{part.collation.lower()}"

    def _name(self, constant: object) -> str:
        name = f"k{len(self.names)}"
        self.names[name] = constant
        return name
