from decimal import Decimal

import pytest

from tailrace.model.errors import InvalidRequestError
from tailrace.model.table import Kind
from tailrace.model.value import Text
from tailrace.sql.sqlite.query.argument import bind


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (None, None),
        (True, 1),
        (7, 7),
        (1.5, 1.5),
        ("a", "a"),
        (b"a", b"a"),
        (Decimal("12.3400"), "12.3400"),
        (Text(Kind.UUID, "550e8400"), "550e8400"),
        (float("nan"), None),
    ],
)
def test_an_argument_is_bound_in_a_storage_class_of_sqlite(value, stored):
    (bound,) = bind([value], 1)
    assert (type(bound), bound) == (type(stored), stored)


def test_the_number_of_arguments_must_fit():
    with pytest.raises(InvalidRequestError, match="takes 2 arguments, 1 were given"):
        bind([1], 2)


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1])
def test_an_integer_has_64_bits(value):
    with pytest.raises(InvalidRequestError, match="argument 2"):
        bind([1, value], 2)
