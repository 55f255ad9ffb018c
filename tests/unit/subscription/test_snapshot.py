"""Facts about where the rows of a snapshot belong in the log."""

import pytest

from tailrace.model.commit import Draft
from tailrace.model.errors import SourceUnavailableError
from tailrace.model.op import Op
from tailrace.model.table import Column, TableName, TableSchema
from tailrace.subscription.snapshot import offset_of
from tailrace.testing.log import MemoryLog


class Rows:
    """Rows that contain the commits up to a position."""

    def __init__(self, last, partly_after=0):
        self.last = last
        self.partly_after = partly_after

    def contains(self, commit):
        return int(commit.position) <= self.last

    def complete(self, commit):
        return int(commit.position if commit else 0) >= self.partly_after


class PositionedLog(MemoryLog):
    async def append_commits(self, *commits):
        """Append commits as one chunk; each is its position and how many changes it has."""
        schema = await self.put_schema(TableSchema(TableName("app", "t"), 1, (Column("id"),), ("id",), ""))
        drafts = []
        for position, changes in commits:
            draft = Draft(str(position), 0)
            for _ in range(changes):
                draft.add(Op.DELETE, schema, b"[1]")
            drafts.append(draft)
        await self.append(drafts)


@pytest.fixture
async def log():
    """Return a log with the commits 10, 20 | 30 | 40, 50 in three chunks; their last offsets are 2, 3 | 6 | 7, 9."""
    made = PositionedLog()
    await made.append_commits((10, 2), (20, 1))
    await made.append_commits((30, 3))
    await made.append_commits((40, 1), (50, 2))
    return made


@pytest.mark.parametrize(
    ("last", "offset"), [(99, 9), (50, 9), (49, 7), (40, 7), (39, 6), (30, 6), (29, 3), (19, 2), (10, 2), (9, 0)]
)
async def test_the_offset_is_that_of_the_last_change_in_the_rows(log, last, offset):
    assert await offset_of(Rows(last), log) == offset


async def test_an_empty_log_has_nothing_that_the_rows_lack():
    assert await offset_of(Rows(0), PositionedLog()) == 0


async def test_a_place_that_retention_removed_is_not_guessed(log):
    log.forget_before(7)
    assert await offset_of(Rows(40), log) == 7
    with pytest.raises(SourceUnavailableError, match="retention"):
        await offset_of(Rows(20), log)


async def test_a_log_of_which_retention_left_nothing_still_has_its_end(log):
    log.forget_before(10)
    assert await offset_of(Rows(50), log) == 9


async def test_rows_that_contain_a_part_of_a_commit_have_no_offset(log):
    # The commit 40 is of several transactions, and the rows contain the one that ends at 35.
    assert await offset_of(Rows(36, partly_after=35), log) is None
    assert await offset_of(Rows(5, partly_after=1), log) is None


async def test_progress_behind_the_last_commit_does_not_hide_it(log):
    await log.progress("99", durable=True)
    assert await offset_of(Rows(50), log) == 9
    assert await offset_of(Rows(49), log) == 7


async def test_a_source_decides_by_the_number_of_a_transaction_where_positions_have_another_order(log):
    class Seen(Rows):
        def contains(self, commit):
            return commit.txid in (1, 2)

    for number, position in enumerate((60, 70, 80), 1):
        draft = Draft(str(position), 0, txid=number)
        draft.add(Op.DELETE, 1, b"[1]")
        await log.append([draft])
    assert await offset_of(Seen(0), log) == 11
