"""Facts about reading CEL expressions as trees."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.model.errors import InvalidPredicateError
from tailrace.subscription.cel.library import compile_program
from tailrace.subscription.cel.syntax import CelCall, CelLiteral, CelOperation, Select
from tailrace.subscription.cel.text import read_cel
from unit.sql.sqlite.predicate.shop import ORDERS


def tree(text):
    return read_cel(text, ORDERS).tree


def test_operators_bind_as_in_cel_and_a_chain_is_one_level():
    made = tree("1 + 2 * 3 - 4 == 5 || false || true")
    assert (made.operator, len(made.operands)) == ("||", 3)
    equal = made.operands[0]
    assert (equal.operator, [type(one) for one in equal.operands]) == ("==", [CelOperation, CelLiteral])
    assert [getattr(one, "operator", "") for one in equal.operands[0].operands] == ["", "*", ""]


def test_members_calls_and_indexes_follow_each_other():
    made = tree("row.status.size() == [1, 2,][0]")
    size, index = made.operands
    assert isinstance(size, CelCall)
    assert isinstance(size.arguments[0], Select)
    assert isinstance(index, Select)
    assert len(index.operand.parts) == 2


TEXTS = [
    ("'a'", "a"),
    (r"r'\'", "\\"),
    (r"R'\d'", "\\d"),
    (r"'\x41\u0042\U00000043\104'", "ABCD"),
    (r"'\\w\''", "\\w'"),
    ("'''a'b''c'''", "a'b''c"),
    (r"'''\''''", "'"),
    ('"""a"b"""', 'a"b'),
    ("''", ""),
    (r'r"""\"""', "\\"),
]


@pytest.mark.parametrize(("written", "value"), TEXTS)
def test_texts_are_read_as_the_library_reads_them(written, value):
    literal, _ = tree(f"{written} == 'x'").operands
    assert literal.text == value
    assert compile_program(written)({}) == value


@settings(max_examples=300)
@given(st.text(alphabet="'\"\\rb \nx41nau+", max_size=14))
def test_a_text_that_the_library_reads_as_one_literal_is_read_as_the_same_one(written):
    """What one of the two takes for code and the other for text would escape the bounds."""
    try:
        ours = tree(f"({written}) == 'x'").operands[0]
    except InvalidPredicateError:
        return
    try:
        theirs = compile_program(written)({})
    except (ValueError, RuntimeError, TypeError):
        return
    if isinstance(ours, CelLiteral) and isinstance(theirs, str):
        assert ours.text == theirs


@pytest.mark.parametrize("text", ["", "1 +", ".row", "row.", "[1", "{1}", "a b", "[1].map()", "[1].map(1, 1)", "`a`"])
def test_what_is_no_expression_is_refused_with_its_place(text):
    with pytest.raises(InvalidPredicateError):
        tree(text)
