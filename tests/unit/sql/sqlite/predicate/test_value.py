"""Conversions, operators and casts against SQLite's, over values of every storage class."""

import itertools

import apsw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strategies import same
from tailrace.model.errors import PredicateError
from tailrace.sql.sqlite.affinity import FOLDS
from tailrace.sql.sqlite.predicate.value import CASTS, OPERATORS, and3, not3, numeric, or3, order, truth
from unit.sql.sqlite.predicate.sqlite_oracle import BLOBS, INTEGERS, REALS, TEXTS

DATABASE = apsw.Connection(":memory:")
DATABASE.execute("CREATE TABLE number (n NUMERIC)")
EVERY = [None, *INTEGERS, *REALS, *TEXTS, *BLOBS]
SOME = [None, 0, 1, -1, 3, 2**62, -(2**63), 0.5, -2.5, 1e300, float("inf"), "7", "12abc", "1e2", "", b"3"]


def ask(expression: str, *arguments: object) -> object:
    return next(DATABASE.execute(f"SELECT {expression}", arguments))[0]


@pytest.mark.parametrize("operator", OPERATORS)
def test_an_operator_gives_what_sqlite_gives(operator):
    unary = operator.endswith("x")
    expression = f"{operator[0]} ?" if unary else f"? {operator} ?"
    for arguments in itertools.product(EVERY) if unary else itertools.product(EVERY, SOME):
        try:
            ours = OPERATORS[operator](*arguments)
        except PredicateError:
            assert operator == "||"
            continue
        assert same(ours, ask(expression, *arguments)), (operator, arguments)


@pytest.mark.parametrize("affinity", CASTS)
def test_a_cast_gives_what_sqlite_gives(affinity):
    for value in EVERY:
        try:
            ours = CASTS[affinity](value)
        except PredicateError:
            assert affinity in {"TEXT", "BLOB"}
            continue
        assert same(ours, ask(f"CAST(? AS {affinity})", value)), (affinity, value)


@settings(deadline=None)
@given(st.text("0123456789+-.eE \n\0x", max_size=12))
def test_a_text_is_a_number_where_sqlite_takes_it_for_one(text):
    DATABASE.execute("DELETE FROM number")
    DATABASE.execute("INSERT INTO number VALUES (?)", (text,))
    stored = ask("n FROM number")
    assert numeric(text) == stored
    assert isinstance(numeric(text), str) == isinstance(stored, str)


def test_values_are_ordered_as_in_sqlite():
    present = [value for value in EVERY if value is not None]
    for one, other in itertools.product(present, repeat=2):
        expected = ask("(?1 > ?2) - (?1 < ?2)", one, other)
        assert order(one, other) == expected, (one, other)


@pytest.mark.parametrize("collation", FOLDS)
def test_texts_are_ordered_as_in_sqlites_collations(collation):
    with_nul = ["a\0", "A\0b", "a\0C", "a\0bc", "a", "ab", "\0", "\0z", "\0é", "a\x01"]
    for one, other in itertools.product([*TEXTS, *with_nul], repeat=2):
        expected = ask(f"(?1 > ?2 COLLATE {collation}) - (?1 < ?2 COLLATE {collation})", one, other)
        assert order(one, other, FOLDS[collation]) == expected, (one, other)


def test_conditions_are_true_false_or_unknown_as_in_sqlite():
    for one, other in itertools.product(EVERY, SOME):
        assert and3(one, other) == ask("? AND ?", one, other)
        assert or3(one, other) == ask("? OR ?", one, other)
        assert not3(one) == ask("NOT ?", one)
        assert truth(one) == ask("CASE WHEN ?1 THEN 1 WHEN NOT ?1 THEN 0 END", one)
