"""Arrays as PostgreSQL writes them."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.model.errors import InvalidValueError
from tailrace.source.postgres.array_text import parse_array


@pytest.mark.parametrize(
    ("text", "items", "lower"),
    [
        ("{}", [], ()),
        ("{1,NULL,3}", ["1", None, "3"], ()),
        ('{"NULL",null,""}', ["NULL", None, ""], ()),
        ("{{1,2},{3,4}}", [["1", "2"], ["3", "4"]], ()),
        ("[0:1]={a,b}", ["a", "b"], (0,)),
        ("[-2:-1][3:4]={{1,2},{3,NULL}}", [["1", "2"], ["3", None]], (-2, 3)),
        ('{"a \\"b\\" \\\\ c",d}', ['a "b" \\ c', "d"], ()),
        ('{"{1,2}","{}"}', ["{1,2}", "{}"], ()),
        ('{"a\nb"}', ["a\nb"], ()),
    ],
)
def test_arrays_are_read(text, items, lower):
    assert parse_array(text) == (items, lower)


def test_the_delimiter_is_that_of_the_type():
    assert parse_array("{(1,1),(0,0);(2,2),(1,1)}", ";") == (["(1,1),(0,0)", "(2,2),(1,1)"], ())


@pytest.mark.parametrize("text", ["", "1", "{1", "1}", '{"a}', "{{1}", "{1}}", "[0:1]", "[a]={1}", '{"a"b}', "{{1}2}"])
def test_what_is_no_array_is_a_typed_error(text):
    with pytest.raises(InvalidValueError):
        parse_array(text)


def written(items):
    return "{" + ",".join(map(one_written, items)) + "}"


def one_written(item):
    if isinstance(item, list):
        return written(item)
    return "NULL" if item is None else '"' + item.replace("\\", "\\\\").replace('"', '\\"') + '"'


@given(
    st.recursive(
        st.lists(st.none() | st.text(max_size=8), min_size=1, max_size=4),
        lambda inner: st.lists(inner, min_size=1, max_size=3),
        max_leaves=8,
    )
)
def test_what_is_written_is_read(items):
    assert parse_array(written(items)) == (items, ())


@given(st.text('{}[],:="\\a1NUL ', max_size=30))
def test_any_text_is_an_array_or_a_typed_error(text):
    with contextlib.suppress(InvalidValueError):
        parse_array(text)
