import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.sql.sqlite.query.dependency import Dependency, QueryDependencies
from tailrace.subscription.query.etag import QueryState, advance, begin, not_modified, result_etag, state_tag

DEPENDENCIES = QueryDependencies((Dependency("a", frozenset()), Dependency("b", frozenset())), "v1")
STATE = begin(DEPENDENCIES, "log-1", 10)


def tag(state, arguments=(), query_id="q_x", unique=""):
    return state_tag(query_id, arguments, state, unique=unique)


def test_a_tag_is_a_weak_validator_and_stays_what_it_is():
    assert tag(STATE) == 'W/"q:zyxjhtusg75jjvsbxuav67vccnsqqiwm"'


ROWS = [(1, "a", 1.5, None, b"x"), (2, "b", -0.0, None, b"")]


def of_rows(rows, *, columns=("n", "t", "f", "z", "b"), arguments=(1,), ordered=True, query_id="q_x"):
    return result_etag(query_id, arguments, columns, rows, ordered=ordered)


def test_the_etag_of_a_result_stays_what_it_is():
    assert of_rows(ROWS) == 'W/"q:lhprb6wekwieiqii7wkn3b5kgdoxzt3o"'


@pytest.mark.parametrize(
    "other",
    [
        of_rows(ROWS[::-1]),
        of_rows(ROWS[:1]),
        of_rows(ROWS + ROWS[:1]),
        of_rows([(1.0, *ROWS[0][1:]), ROWS[1]]),
        of_rows([("1", *ROWS[0][1:]), ROWS[1]]),
        of_rows([(*ROWS[0][:-1], "x"), ROWS[1]]),
        of_rows(ROWS, columns=("n", "t", "f", "z", "c")),
        of_rows(ROWS, arguments=("1",)),
        of_rows(ROWS, query_id="q_y"),
        tag(STATE),
    ],
)
def test_another_result_has_another_etag(other):
    assert other != of_rows(ROWS)


def test_order_belongs_to_a_result_only_where_the_query_has_one():
    assert of_rows(ROWS, ordered=False) == of_rows(ROWS[::-1], ordered=False)
    assert of_rows(ROWS, ordered=False) != of_rows(ROWS + ROWS[:1], ordered=False)


@given(st.lists(st.tuples(st.none() | st.integers(-3, 3) | st.text(max_size=2) | st.binary(max_size=2)), max_size=5))
def test_rows_in_any_order_are_the_same_result_as_often_as_they_occur(rows):
    one = of_rows(rows, ordered=False)
    assert of_rows(sorted(rows, key=repr), ordered=False) == one
    assert of_rows([*rows, (1,)], ordered=False) != one


def test_a_state_begins_with_the_head_as_every_version():
    assert QueryState("log-1", "v1", 10, {"a": 10, "b": 10}) == STATE


def test_an_irrelevant_change_keeps_the_etag_and_a_relevant_one_gives_a_new():
    later = advance(STATE, {}, 15)
    assert later.scanned == 15
    assert tag(later) == tag(STATE)
    touched = advance(later, {"b": 17}, 20)
    assert touched.versions == {"a": 10, "b": 17}
    assert tag(touched) != tag(STATE)


@pytest.mark.parametrize(
    "other",
    [
        tag(STATE, query_id="q_y"),
        tag(STATE, arguments=(1,)),
        tag(STATE, unique="1"),
        tag(msgspec.structs.replace(STATE, log_id="log-2")),
        tag(msgspec.structs.replace(STATE, catalog_version="v2")),
        tag(msgspec.structs.replace(STATE, versions={"a": 10, "b": 11})),
        tag(msgspec.structs.replace(STATE, versions={"a": 10})),
    ],
    ids=["query", "arguments", "unique", "log", "catalog", "version", "tables"],
)
def test_everything_that_the_result_hangs_on_is_in_the_etag(other):
    assert other != tag(STATE)


ARGUMENTS = st.lists(
    st.none() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3) | st.binary(max_size=3), max_size=3
)


@settings(deadline=None)
@given(ARGUMENTS, ARGUMENTS)
def test_only_the_same_arguments_have_the_same_etag(one, other):
    same = [repr(value) for value in one] == [repr(value) for value in other]
    assert (tag(STATE, tuple(one)) == tag(STATE, tuple(other))) is same


def test_a_state_survives_as_json():
    assert msgspec.json.decode(msgspec.json.encode(STATE), type=QueryState) == STATE


@pytest.mark.parametrize(
    ("header", "matches"),
    [
        (None, False),
        ("", False),
        (tag(STATE), True),
        (tag(STATE).removeprefix("W/"), True),
        (f'"x", {tag(STATE)}', True),
        ('W/"q:other"', False),
        ("*", False),
        (tag(STATE).strip('W/"'), False),
    ],
)
def test_if_none_match_is_compared_weakly(header, matches):
    assert not_modified(header, tag(STATE)) is matches
