"""Facts about accepting connections; `integration/test_listener.py` does it."""

import resource

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.delivery.listener import ceiling_of, listen
from tailrace.model.errors import ListenError


@pytest.mark.parametrize(
    ("limit", "ceiling"),
    [(1024, 768), (256, 192), (65_536, 65_024), (20_000, 19_488), (resource.RLIM_INFINITY, None)],
)
def test_connections_leave_a_reserve_of_descriptors(limit, ceiling):
    assert ceiling_of(limit) == ceiling


@given(st.integers(16, 1 << 20))
def test_there_is_always_a_reserve_and_always_room(limit):
    assert 0 < ceiling_of(limit) < limit


def test_an_address_that_cannot_be_listened_on_is_named():
    with pytest.raises(ListenError, match=r"\[2001:db8::1\]:80"):
        listen("2001:db8::1", 80)
