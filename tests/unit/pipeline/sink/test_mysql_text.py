"""Rows as the text of MySQL's statements."""

from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.model.errors import SinkRefusedError
from tailrace.pipeline.sink.mysql import in_statements, row_texts


@pytest.mark.parametrize(
    ("value", "type_", "text"),
    [
        (-5, pa.int64(), "-5"),
        (1.5, pa.float64(), "1.5"),
        (True, pa.bool_(), "true"),
        (None, pa.string(), "NULL"),
        ("", pa.string(), "''"),
        ("it's", pa.string(), "'it\\'s'"),
        ("a\\'; DROP TABLE t; --", pa.string(), "'a\\\\\\'; DROP TABLE t; --'"),
        ("nul\0byte %s", pa.string(), "'nul\\0byte %s'"),
        ("NULL", pa.string(), "'NULL'"),
        (b"\x00'\xff", pa.binary(), "x'0027ff'"),
        (Decimal("-0.0000000001"), pa.decimal128(38, 10), "'-1E-10'"),
        (date(2026, 1, 2), pa.date32(), "'2026-01-02'"),
        (datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC), pa.timestamp("us", tz="UTC"), "'2026-01-02 03:04:05.000006'"),
    ],
)
def test_a_value_is_written_so(value, type_, text):
    assert row_texts(pa.table({"a": pa.array([value], type_), "b": [7]})) == [f"({text},7)"]


def read_back(text):
    """Read a text literal as MySQL does."""
    assert (text[0], text[-1]) == ("'", "'")
    inner, read, place = text[1:-1], [], 0
    while place < len(inner):
        assert inner[place] != "'", "the text ends too early"
        if inner[place] == "\\":
            place += 1
            read.append({"0": "\0"}.get(inner[place], inner[place]))
        else:
            read.append(inner[place])
        place += 1
    return "".join(read)


@given(st.text(st.characters(codec="utf-8") | st.sampled_from("'\\\0%\"")))
def test_no_text_ends_its_literal(text):
    (row,) = row_texts(pa.table({"a": [text]}))
    assert read_back(row[1:-1]) == text


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_what_is_not_finite_is_refused(value):
    with pytest.raises(SinkRefusedError, match="NaN or infinity"):
        row_texts(pa.table({"a": [1.0, None, value]}))


@given(st.lists(st.text(max_size=20), min_size=1), st.integers(100, 200))
def test_statements_are_bounded_and_have_all_rows(texts, bytes_max):
    runs = list(in_statements(texts, bytes_max, bytes_max))
    assert [text for run in runs for text in run] == texts
    assert all(len(",".join(run).encode()) <= bytes_max for run in runs)


def test_a_row_that_is_larger_than_a_statement_should_be_has_one_of_its_own():
    large = "x" * 100
    assert list(in_statements([large, "a", "b", large, large], 50, 101)) == [[large], ["a", "b"], [large], [large]]


def test_a_row_that_no_statement_holds_is_refused():
    with pytest.raises(SinkRefusedError, match="max_allowed_packet"):
        list(in_statements(["short", "x" * 100], 50, 100))
