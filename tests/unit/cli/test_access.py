"""Facts about words on the command line and tables on the terminal."""

import pytest

from tailrace.cli.access import member_lines, parse_start, parse_value, table_lines


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("5", 5),
        ('"5"', "5"),
        ("five", "five"),
        ("1.5", 1.5),
        ("true", True),
        ("null", None),
        ('{"t":"u64","v":5}', {"t": "u64", "v": 5}),
        ("2026-01-31", "2026-01-31"),
        ("", ""),
    ],
)
def test_a_word_is_json_where_it_can_be_read_so_and_text_otherwise(word, value):
    assert parse_value(word) == value


@pytest.mark.parametrize(
    ("word", "start"), [("7", 7), ("earliest", "earliest"), ("2026-01-31T10:00Z", "2026-01-31T10:00Z")]
)
def test_a_start_is_an_offset_a_word_or_a_time(word, start):
    assert parse_start(word) == start


def test_a_table_is_aligned_and_its_cells_are_short():
    lines = table_lines(("id", "note"), [(1, "x" * 100), (100, None), (2, "a\nb")])
    assert lines == ["id   note", f"1    {'x' * 59}…", "100  -", "2    a⏎b"]


def test_members_are_shown_whole_without_those_that_say_nothing():
    members = {"id": 1, "problem": "x" * 100, "note": "", "options": {}, "more": {"a": None}, "none": None}
    assert member_lines(members) == ["id       1", f"problem  {'x' * 100}", 'more     {"a":null}']
