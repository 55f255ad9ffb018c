"""Facts about results that go along with events."""

import json

from tailrace.model.subscription import Format
from tailrace.source.base import ResultRows
from tailrace.subscription.query.result import InlineLimits, inline_members, rows_json

LIMITS = InlineLimits(rows_max=3, bytes_max=1000)


def result(*rows):
    return ResultRows(("a",), [(row,) for row in rows], "1")


def members(new, old=None, format_=Format.PLAIN_JSON, limits=LIMITS):
    return json.loads(b"{" + inline_members(new, old, format_, limits)[1:] + b"}")


def test_rows_are_lists_in_either_format():
    rows = [(1, None, "x", b"\x00", float("inf"))]
    assert rows_json(rows, Format.PLAIN_JSON) == [[1, None, "x", "AA==", None]]
    typed = rows_json(rows, Format.OBJECTS_JSON)[0]
    assert [cell["t"] for cell in typed] == ["i64", "null", "str", "bytes", "f64"]


def test_a_small_result_is_told_whole():
    assert members(result(1, 2, 3)) == {"result": {"columns": ["a"], "rows": [[1], [2], [3]]}}


def test_a_large_result_is_told_by_its_difference_to_the_one_before():
    told = members(result(1, 2, 3, 5), ("E", result(1, 2, 3, 4)))
    assert told == {"delta": {"since": "E", "added": [[5]], "removed": [[4]], "reordered": False}}


def test_what_is_too_large_either_way_is_left_out():
    omitted = {"result_omitted": True}
    assert members(None) == omitted
    assert members(result(1, 2, 3, 4)) == omitted
    assert members(result(1, 2, 3, 4), ("E", result(5, 6, 7, 8))) == omitted
    assert members(result("x" * 2000)) == omitted
    other = ResultRows(("b",), [(1,)], "1")
    assert members(result(1, 2, 3, 4), ("E", other)) == omitted
