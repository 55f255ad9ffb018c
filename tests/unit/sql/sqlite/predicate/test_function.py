"""Every function against SQLite's own of the same name, over arguments of every storage class."""

import itertools

import apsw
import pytest

from strategies import same
from tailrace.model.errors import PredicateError
from tailrace.sql.sqlite.predicate.function import FUNCTIONS, extreme, null_if
from unit.sql.sqlite.predicate.sqlite_oracle import BLOBS, INTEGERS, REALS, TEXTS

DATABASE = apsw.Connection(":memory:")
EVERY = [None, *INTEGERS, *REALS, *TEXTS, *BLOBS]
SOME = [None, 0, 2, -3, 2**63 - 1, 1.5, "", "a", " ab", "é1", "a\0b", b"", b"ab"]


def ask(name: str, arguments: tuple) -> object:
    """Return what SQLite answers, or the error that it raises."""
    try:
        return next(DATABASE.execute(f"SELECT {name}({', '.join('?' * len(arguments))})", arguments))[0]
    except apsw.SQLError as error:
        return error


def compute(name: str, arguments: tuple) -> object:
    try:
        return FUNCTIONS[name].compute(*arguments)
    except PredicateError as error:
        return error


def calls():
    for name, function in FUNCTIONS.items():
        for number in range(function.arguments_min, function.arguments_max + 1):
            yield name, number


@pytest.mark.parametrize(("name", "number"), list(calls()))
def test_a_function_gives_what_sqlite_gives(name, number):
    pools = [EVERY] if number == 1 else [EVERY, SOME] if number == 2 else [SOME] * 3
    for arguments in itertools.product(*pools):
        ours = compute(name, arguments)
        if isinstance(ours, PredicateError):
            assert "overflow" in ours.reason or "used as text" in ours.reason
        else:
            assert same(ours, ask(name, arguments)), (name, arguments)


@pytest.mark.parametrize(("name", "sign"), [("max", 1), ("min", -1)])
def test_the_extreme_of_several_values_is_sqlites(name, sign):
    for arguments in itertools.product(EVERY, SOME):
        assert same(extreme(sign, None, *arguments), ask(name, arguments)), arguments


def test_nullif_is_sqlites():
    for arguments in itertools.product(EVERY, SOME):
        assert same(null_if(*arguments), ask("nullif", arguments)), arguments
