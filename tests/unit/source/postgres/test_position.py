"""Positions, and from which of them a log may go on."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from tailrace.model.errors import SourceStateError
from tailrace.model.number import Position
from tailrace.source.postgres.position import (
    Place,
    Slot,
    System,
    format_lsn,
    format_position,
    parse_history,
    parse_lsn,
    parse_position,
    require_resumable,
    require_usable,
)

SYSTEM = System(7, 3, 1000, ((1, 100), (2, 500)))
SLOT = Slot("s", "pgoutput", "db", 50)


@given(st.integers(0, 2**64 - 1))
def test_places_are_written_as_the_server_writes_them(lsn):
    assert parse_lsn(format_lsn(lsn)) == lsn
    assert parse_position(format_position(5, 2, lsn)) == Place(5, 2, lsn)


def test_a_place_has_two_halves():
    assert format_lsn(0x1_6B37_4D84_8) == "16/B374D848"
    assert parse_lsn("16/B374D848") == 0x16B374D848


@pytest.mark.parametrize("text", ["", "1", "1/", "/1", "1/g", "123456789/0", "0/0 "])
def test_what_is_no_place_is_an_error(text):
    with pytest.raises(ValueError, match="no place"):
        parse_lsn(text)


@pytest.mark.parametrize("text", ["", "12", "5f0c-4711", "1:2", "1:2:3"])
def test_positions_of_other_sources_are_a_typed_error(text):
    with pytest.raises(SourceStateError, match="no position of PostgreSQL"):
        parse_position(Position(text))


def test_histories_tell_where_timelines_were_left():
    text = "1\t0/64\tno recovery target specified\n\n2\t0/1F4\tbefore 2000-01-01 00:00:00+00\n"
    assert parse_history(text) == ((1, 100), (2, 500))


@pytest.mark.parametrize(
    "place", [Place(7, 3, 50), Place(7, 3, 1000), Place(7, 1, 100), Place(7, 2, 500), Place(7, 2, 50)]
)
def test_a_position_that_the_server_has_and_the_slot_has_not_passed_is_resumed(place):
    require_resumable(place, SYSTEM, SLOT)


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        (Place(8, 3, 60), "of the PostgreSQL cluster 8"),
        (Place(7, 4, 60), "not in the history"),
        (Place(7, 1, 101), "left timeline 1 at 0/64"),
        (Place(7, 2, 501), "left timeline 2"),
        (Place(7, 3, 1001), "restored from an older copy"),
        (Place(7, 3, 49), "dropped and made again"),
    ],
)
def test_any_other_position_is_refused_with_the_reason(place, reason):
    with pytest.raises(SourceStateError, match=f"{reason}.*tailrace log reset"):
        require_resumable(place, SYSTEM, SLOT)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"lost": "wal_removed"}, "invalidated by the server"),
        ({"plugin": "wal2json"}, "uses wal2json, not pgoutput"),
        ({"plugin": ""}, "physical replication"),
        ({"database": "other"}, "belongs to database other"),
        ({"two_phase": True}, "two_phase"),
    ],
)
def test_slots_that_cannot_give_changes_are_refused(changed, reason):
    require_usable(SLOT, "db")
    with pytest.raises(SourceStateError, match=reason):
        require_usable(structs.replace(SLOT, **changed), "db")
