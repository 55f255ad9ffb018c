import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.subscription.query.dependency import Dependencies, Dependency
from tailrace.subscription.query.etag import QueryState, advance, begin, etag, not_modified

DEPENDENCIES = Dependencies((Dependency("a", frozenset()), Dependency("b", frozenset())), "v1")
STATE = begin(DEPENDENCIES, "log-1", 10)


def tag(state, arguments=(), query_id="q_x", unique=""):
    return etag(query_id, arguments, state, unique=unique)


def test_an_etag_is_a_weak_validator_and_stays_what_it_is():
    assert tag(STATE) == 'W/"q:iqvgwz3suqtpdh4migrvwpiwj2gnliqf"'


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
