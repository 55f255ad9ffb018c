"""Facts about errors on the wire."""

import re
from pathlib import Path

import pytest

from tailrace.delivery.problem import TABLE, problem_of
from tailrace.model.errors import BehindHorizonError, BeyondHeadError, TailraceError, UnknownTableError

CODES = {
    "invalid_request",
    "unsupported_version",
    "unauthorized",
    "forbidden",
    "rate_limited",
    "not_found",
    "not_supported",
    "not_implemented",
    "conflict",
    "timeout",
    "internal",
}
ROOT = Path(__file__).parent.parent.parent.parent


def tree(error=TailraceError):
    """The errors of the model. What a client raises is on the other side of the wire."""
    if error.__module__ == TailraceError.__module__:
        yield error
        for child in error.__subclasses__():
            yield from tree(child)


@pytest.mark.parametrize("error", list(tree()), ids=lambda error: error.__name__)
def test_every_error_has_a_code_and_a_place_in_the_docs(error):
    assert TABLE[error] in CODES
    docs = (ROOT / "docs" / "reference" / "errors.md").read_text()
    assert re.search(rf"^### {error.__name__}$", docs, re.MULTILINE)


def test_nothing_but_errors_is_in_the_table():
    assert set(TABLE) == set(tree())


def test_numbers_that_a_program_can_use_are_told_as_details():
    assert problem_of(BeyondHeadError(requested=9, head=7)).details == {"requested": 9, "head": 7}
    assert problem_of(BehindHorizonError(requested=1, horizon=5)).details == {"requested": 1, "horizon": 5}
    assert problem_of(UnknownTableError("app", "t")).details is None
