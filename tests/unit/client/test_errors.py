"""Facts about the errors of a client."""

import pytest

from tailrace.client.errors import CODES, STATUSES, ClientError, Refused, ResnapshotRequired, refusal
from tailrace.model.errors import TailraceError

CONTRACT = {
    "invalid_request",
    "unsupported_version",
    "unauthorized",
    "forbidden",
    "not_found",
    "not_supported",
    "not_implemented",
    "conflict",
    "timeout",
    "rate_limited",
    "internal",
    "precondition_failed",
}


def test_every_code_of_the_interface_has_its_error():
    assert set(CODES) == CONTRACT
    assert set(STATUSES.values()) <= CONTRACT


@pytest.mark.parametrize("code", sorted(CONTRACT))
def test_an_error_keeps_code_message_and_details(code):
    error = refusal(code, "no", {"head": 7})
    assert type(error) is CODES[code]
    assert (error.code, str(error), error.details) == (code, "no", {"head": 7})
    assert isinstance(error, ClientError)
    assert isinstance(error, TailraceError)


def test_a_code_of_a_newer_server_is_a_plain_refusal():
    error = refusal("too_windy", "no")
    assert type(error) is Refused
    assert (error.code, error.details) == ("too_windy", {})


def test_a_lost_place_tells_its_numbers():
    error = ResnapshotRequired(
        sub_id="sub_1", earliest_offset=9, latest_offset=20, resnapshot_from_offset=8, reason="wal_horizon_exceeded"
    )
    assert (error.earliest_offset, error.latest_offset, error.resnapshot_from_offset) == (9, 20, 8)
    assert "before offset 9" in str(error)
