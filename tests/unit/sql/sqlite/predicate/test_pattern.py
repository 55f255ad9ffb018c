"""LIKE and GLOB against SQLite's, and their cost."""

import time

import apsw
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tailrace.model.errors import PredicateError
from tailrace.sql.sqlite.predicate.pattern import glob, glob_matcher, like, like_matcher, match_value

DATABASE = apsw.Connection(":memory:")
SUBJECTS = st.text("aAbBéÉ%_\\[]^-*? \0", max_size=8)


def ask(operator: str, subject: object, pattern: object, escape: str = "") -> bool | None:
    arguments = [subject, pattern] + ([escape] if escape else [])
    answer = next(DATABASE.execute(f"SELECT ? {operator} ?{' ESCAPE ?' if escape else ''}", arguments))[0]
    return None if answer is None else bool(answer)


@settings(deadline=None)
@given(SUBJECTS, SUBJECTS, st.sampled_from(["", "\\", "a", "%", "_", "É"]))
@example("ab", "a%b", "")
@example("a%", "a\\%", "\\")
@example("a", "a\\", "\\")
def test_like_is_sqlites(subject, pattern, escape):
    assert like(subject, pattern, escape) == ask("LIKE", subject, pattern, escape)


@settings(deadline=None)
@given(SUBJECTS, SUBJECTS)
@example("]", "[]]")
@example("b", "[a-c]")
@example("-", "[a-]")
@example("a", "[^]")
@example("a", "[")
def test_glob_is_sqlites(subject, pattern):
    assert glob(subject, pattern) == ask("GLOB", subject, pattern)


@pytest.mark.parametrize("subject", [None, 12, "12", b"12"])
@pytest.mark.parametrize("pattern", [None, 12, "1%", b"12"])
def test_numbers_are_text_and_blobs_match_nothing(subject, pattern):
    assert like(subject, pattern) == ask("LIKE", subject, pattern)
    assert glob(subject, pattern) == ask("GLOB", subject, pattern)
    if isinstance(pattern, str):
        assert match_value(like_matcher(pattern), subject) == ask("LIKE", subject, pattern)


@pytest.mark.parametrize("make", [lambda: like_matcher("%a" * 40 + "%b"), lambda: glob_matcher("*a" * 40 + "*[b-c]")])
def test_a_pattern_of_many_wildcards_takes_time_in_proportion_to_the_text(make):
    matches, text = make(), "a" * 200_000
    begin = time.perf_counter()
    assert not matches(text)
    assert time.perf_counter() - begin < 5


def test_a_pattern_has_sqlites_bound():
    assert like_matcher("%" * 50_000)("x") is True
    with pytest.raises(PredicateError, match="longer than 50000 bytes"):
        like_matcher("%" * 50_001)


@pytest.mark.parametrize("match", [like, glob])
def test_a_pattern_out_of_a_row_is_bounded_with_the_text(match):
    assert match("a" * 1000, "a" * 1000) is True
    with pytest.raises(PredicateError, match="longer than 4096 bytes"):
        match("x", "a" * 4097)
    with pytest.raises(PredicateError, match="write the pattern as a literal"):
        match("a" * 5000, "a" * 4000)
