"""Facts about the names of subscriptions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.model.errors import UnknownSubscriptionError
from tailrace.model.subscription import parse_sub_id, sub_id_of


@given(st.integers(0, 2**63 - 1))
def test_a_name_and_its_number_belong_together(number):
    assert parse_sub_id(sub_id_of(number)) == number


def test_a_name_is_sub_and_sixteen_hexadecimal_digits():
    assert sub_id_of(0x1F) == "sub_000000000000001f"


@pytest.mark.parametrize(
    "name", ["", "sub_", "sub_1", "sub-1", "sub_000000000000001F", "sub_00000000000000001", "sub_000000000000001f\n"]
)
def test_other_names_are_nobodys(name):
    with pytest.raises(UnknownSubscriptionError):
        parse_sub_id(name)
