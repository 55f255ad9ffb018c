"""Rounds go on whatever fails for now, and end with the log."""

import pytest

from tailrace.model.errors import LogClosedError, LogError, MetadataError
from tailrace.subscription.rounds import go_rounds


async def test_what_fails_now_is_tried_again_until_the_log_is_closed(caplog):
    rounds = iter([None, MetadataError("away"), LogError("damaged"), None, LogClosedError("closed")])

    async def look():
        if (error := next(rounds)) is not None:
            raise error

    await go_rounds(look, "pullers", 0.0)
    assert list(rounds) == []
    assert [(record.getMessage(), record.problem) for record in caplog.records] == [
        ("pullers cannot be looked at now", "away"),
        ("pullers cannot be looked at now", "damaged"),
    ]


async def test_a_fault_of_our_own_is_not_hidden():
    async def look():
        raise KeyError("a fault")

    with pytest.raises(KeyError):
        await go_rounds(look, "pullers", 0.0)
