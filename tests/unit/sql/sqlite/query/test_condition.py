"""Three-valued logic with "cannot tell", against SQLite's own."""

from itertools import product

import apsw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.sql.sqlite.affinity import Affinity
from tailrace.sql.sqlite.query.condition import (
    ANY,
    FALSE,
    NULL,
    OPAQUE,
    TRUE,
    All,
    Among,
    Argument,
    Compare,
    Either,
    Equal,
    Fixed,
    LiteralTerm,
    Negated,
    ReferenceColumn,
    Same,
    columns,
    compile_condition,
    mask_of_nulls,
    replace,
)

CONNECTION = apsw.Connection(":memory:")
A = ReferenceColumn(0, "a", Affinity.NUMERIC)
B = ReferenceColumn(0, "b", Affinity.TEXT)
ELSEWHERE = ReferenceColumn(1, "c", Affinity.NUMERIC)
OUTCOMES = {TRUE: 1, FALSE: 0, NULL: None}
VALUES = st.sampled_from([None, 0, 1, 2, "a", "1", "b", b"a", 1.5])
CONSTANTS = st.builds(LiteralTerm, VALUES) | st.just(Argument(1))

LEAVES = st.one_of(
    st.builds(Compare, st.sampled_from(["=", "<>", "<", "<=", ">", ">="]), st.sampled_from([A, B]), CONSTANTS),
    st.builds(Among, st.sampled_from([A, B]), st.lists(CONSTANTS, max_size=3).map(tuple)),
    st.builds(Same, st.sampled_from([A, B]), CONSTANTS),
    st.builds(Fixed, st.sampled_from([TRUE, FALSE, NULL])),
)
CONDITIONS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds(All, st.lists(inner, min_size=1, max_size=3).map(tuple)),
        st.builds(Either, st.lists(inner, min_size=1, max_size=3).map(tuple)),
        st.builds(Negated, inner),
    ),
    max_leaves=6,
)


def sql(condition):
    """Return a condition as SQL text."""
    match condition:
        case Compare(sign, column, constant):
            return f"({column.name} {sign} {text(constant)})"
        case Among(column, constants):
            return f"({column.name} IN ({', '.join(map(text, constants))}))"
        case Same(column, constant):
            return f"({column.name} IS {text(constant)})"
        case Fixed(mask):
            return {TRUE: "1", FALSE: "0", NULL: "NULL"}[mask]
        case All(parts):
            return "(" + " AND ".join(map(sql, parts)) + ")"
        case Either(parts):
            return "(" + " OR ".join(map(sql, parts)) + ")"
        case Negated(part):
            return f"(NOT {sql(part)})"


def text(constant):
    return "?1" if isinstance(constant, Argument) else apsw.format_sql_value(constant.value)


@settings(deadline=None)
@given(CONDITIONS, VALUES, VALUES, VALUES)
def test_a_condition_has_the_outcome_that_sqlite_gives_it(condition, a, b, argument):
    CONNECTION.execute("DROP TABLE IF EXISTS t")
    CONNECTION.execute("CREATE TABLE t (a NUMERIC, b TEXT)")
    CONNECTION.execute("INSERT INTO t VALUES (?, ?)", (a, b))
    kept_a, kept_b, outcome = CONNECTION.execute(
        f"SELECT a, b, {sql(condition)} FROM t", (argument,) if "?1" in sql(condition) else ()
    ).fetchone()
    mask = compile_condition(condition, 0, (argument,))({"a": kept_a, "b": kept_b})
    possible = {OUTCOMES[bit] for bit in OUTCOMES if mask & bit}
    assert outcome in possible


@settings(deadline=None)
@given(CONDITIONS, VALUES, VALUES, VALUES)
def test_what_cannot_be_true_with_nulls_is_not_true_with_a_null_row(condition, a, b, argument):
    if not mask_of_nulls(condition, frozenset({0})) & TRUE:
        assert not compile_condition(condition, 0, (argument,))({"a": None, "b": None}) & TRUE


ALL_MASKS = range(1, 8)


@pytest.mark.parametrize(("left", "right"), list(product(ALL_MASKS, ALL_MASKS)))
def test_the_masks_of_and_and_or_are_all_outcomes_of_their_parts(left, right):
    def outcomes(mask):
        return [bit for bit in (TRUE, FALSE, NULL) if mask & bit]

    for shape, word in ((All, "AND"), (Either, "OR")):
        mask = compile_condition(shape((Fixed(left), Fixed(right))), 0, ())({})
        expected = set()
        for one, other in product(outcomes(left), outcomes(right)):
            sides = ["NULL" if OUTCOMES[bit] is None else str(OUTCOMES[bit]) for bit in (one, other)]
            expected.add(CONNECTION.execute(f"SELECT {sides[0]} {word} {sides[1]}").get)
        assert {OUTCOMES[bit] for bit in outcomes(mask)} == expected


def test_the_column_of_another_reference_can_be_anything():
    assert compile_condition(Compare("=", ELSEWHERE, LiteralTerm(1)), 0, ())({"c": 2}) == ANY


def test_a_column_that_the_row_lacks_can_be_anything():
    assert compile_condition(Compare("=", A, LiteralTerm(1)), 0, ())({}) == ANY


def test_columns_cannot_be_equal_if_one_is_null():
    equal = compile_condition(Equal(A, ELSEWHERE), 0, ())
    assert equal({"a": None}) == NULL
    assert equal({"a": 1}) == ANY


def test_an_opaque_part_leaves_the_rest_to_tell():
    condition = All((OPAQUE, Compare("=", A, LiteralTerm(1))))
    assert compile_condition(condition, 0, ())({"a": 1}) & TRUE
    assert not compile_condition(condition, 0, ())({"a": 2}) & TRUE


def test_constants_that_are_equal_but_of_different_types_are_kept_apart():
    condition = Either((Compare("=", B, LiteralTerm(1)), Compare("=", B, LiteralTerm(1.0))))
    assert compile_condition(condition, 0, ())({"b": "1"}) == TRUE
    assert compile_condition(condition, 0, ())({"b": "2"}) == ANY


def test_one_column_stands_in_for_another():
    leaves = (Compare("=", A, LiteralTerm(1)), Among(A, ()), Same(A, LiteralTerm(None)), Equal(A, B), OPAQUE)
    condition = Negated(Either((All(leaves),)))
    replaced = replace(condition, A, ELSEWHERE)
    assert columns(condition) == {A, B}
    assert columns(replaced) == {A, B, ELSEWHERE}  # equalities stay
