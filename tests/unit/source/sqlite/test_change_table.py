import pytest

from tailrace.model.errors import SourceStateError
from tailrace.source.sqlite.change_table import (
    CELLS_MAX,
    ChangeCode,
    format_position,
    header,
    in_migration,
    insert_statements,
    parse_position,
    quote,
)


def test_a_position_names_the_capture_and_the_row():
    position = format_position("9f3a", 42)
    assert position == "9f3a-42"
    assert parse_position(position, "9f3a") == 42
    assert not in_migration(position)


def test_a_position_may_be_in_the_middle_of_a_bulk_load():
    position = format_position("9f3a", 42, migration=True)
    assert parse_position(position, "9f3a") == 42
    assert in_migration(position)


@pytest.mark.parametrize("position", ["42", "beef-42", "9f3a-", "9f3a-x", "9f3a--1", ""])
def test_a_position_of_another_capture_is_refused_with_advice(position):
    with pytest.raises(SourceStateError, match="begin a new log"):
        parse_position(position, "9f3a")


def test_the_header_holds_version_and_code():
    assert header(5, ChangeCode.DELETE) == 43
    assert max(ChangeCode) < 8


def test_quotes_in_identifiers_are_doubled():
    assert quote('a"b') == '"a""b"'


def test_a_row_too_wide_for_one_is_written_in_parts():
    cells = [f"NEW.x{number}" for number in range(CELLS_MAX + 2)]
    first, second = insert_statements(3, ChangeCode.INSERT, cells)
    assert f"VALUES({header(3, ChangeCode.INSERT)}," in first
    assert f"VALUES({header(3, ChangeCode.MORE)}," in second
    assert second.endswith(f"NEW.x{CELLS_MAX},NEW.x{CELLS_MAX + 1})")
