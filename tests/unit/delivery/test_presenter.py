"""Facts about encoding once for many."""

import asyncio

import pytest

from feeding import chunk_of, draft_of, schema_of
from held import held_memory
from tailrace.delivery.presenter import Presenter
from tailrace.delivery.view import View
from tailrace.interface.skeindb.present import ARRAY, SSE, encode
from tailrace.metrics import Metrics
from tailrace.model.op import Op
from tailrace.model.subscription import FilterOptions, Format, Include, TableTarget
from tailrace.model.table import TableName
from tailrace.subscription.feed_batch import FeedBatch
from tailrace.subscription.filter import Filter

SCHEMAS = [schema_of("users"), schema_of("orders")]
VIEW = View(SSE, Format.PLAIN_JSON, Include())
ROWS = [(Op.INSERT, 1), (Op.UPDATE, 1), (Op.DELETE, 2)] * 20


def batch_of(*ops, first=1, rows=ROWS, tables=("users", "orders")):
    target = TableTarget(tuple(TableName("app", table) for table in tables))
    chunk = chunk_of(SCHEMAS, draft_of(rows), first=first)
    return FeedBatch("app", chunk, Filter(target, FilterOptions(ops)), first - 1)


class Counting:
    def __init__(self, bytes_max=1 << 20):
        self.metrics = Metrics()
        self.presenter = Presenter(bytes_max, self.metrics.encoded_changes)

    @property
    def count(self):
        return self.metrics.registry.get_sample_value("tailrace_encoded_changes_total")

    def events(self, batch, view=VIEW):
        found = self.presenter.encoded(batch, view).events()
        assert found == encode(batch.chunk, batch.rows(), view).events()
        return found


def test_a_hundred_feeds_with_one_filter_cost_one_encoding():
    counting = Counting()
    for _ in range(100):
        counting.events(batch_of(Op.INSERT, Op.UPDATE, Op.DELETE))
    assert counting.count == len(ROWS)


def test_broad_filters_share_the_encoding_of_the_whole_chunk():
    counting = Counting()
    counting.events(batch_of(Op.INSERT))
    counting.events(batch_of(Op.UPDATE, Op.DELETE))
    counting.events(batch_of(Op.INSERT, tables=("users",)))
    assert counting.count == len(ROWS)


def test_a_narrow_filter_encodes_what_it_wants_only():
    counting = Counting()
    rows = [(Op.INSERT, 1)] * 99 + [(Op.DELETE, 1)]
    assert len(counting.events(batch_of(Op.DELETE, rows=rows))) == 1
    assert counting.count == 1


def test_nothing_wanted_is_nothing():
    counting = Counting()
    assert counting.events(batch_of(Op.SCHEMA)) == []
    assert counting.count == 0


def test_other_views_and_other_chunks_are_other_bytes():
    counting = Counting()
    counting.events(batch_of(Op.INSERT))
    counting.events(batch_of(Op.INSERT), View(ARRAY, Format.OBJECTS_JSON, Include(after=True)))
    counting.events(batch_of(Op.INSERT, first=1000))
    assert counting.count == 3 * len(ROWS)


def test_what_was_not_used_longest_goes_first():
    counting = Counting(bytes_max=80_000)
    everything = (Op.INSERT, Op.UPDATE, Op.DELETE)
    counting.events(batch_of(*everything, first=1))
    counting.events(batch_of(*everything, first=1001))
    assert counting.count == 2 * len(ROWS)
    for first in (1, 2001, 1):
        counting.events(batch_of(*everything, first=first))
    assert counting.count == 3 * len(ROWS)
    counting.events(batch_of(*everything, first=1001))
    assert counting.count == 4 * len(ROWS)


def test_what_does_not_fit_is_given_all_the_same():
    counting = Counting(bytes_max=10)
    counting.events(batch_of(Op.INSERT, Op.UPDATE, Op.DELETE))
    counting.events(batch_of(Op.INSERT))


@pytest.mark.parametrize("rows", [ROWS, ROWS * 30, ROWS[:1]], ids=["some", "many", "one"])
def test_what_is_counted_is_what_is_held(rows):
    """With pieces that were cut for feeds, whose bytes are kept too."""
    presenter = Counting(bytes_max=300_000).presenter
    batch = batch_of(Op.INSERT, rows=rows)
    empty = held_memory(presenter, batch, VIEW)
    for first in range(1, 60_000, 1000):
        chunk = chunk_of(SCHEMAS, draft_of(rows), first=first)
        for filter_ in (batch.filter, batch_of(Op.UPDATE, rows=rows).filter):
            encoded = presenter.encoded(FeedBatch("app", chunk, filter_, first - 1), VIEW)
            after = first - 1
            while after < chunk.last:
                after = encoded.cut(after, 7, 1 << 20).through
        assert held_memory(presenter, batch, VIEW) - empty <= presenter.size_bytes <= 300_000


MANY = ROWS * 20


@pytest.mark.parametrize(
    ("ops", "wanted"),
    [((Op.INSERT, Op.UPDATE, Op.DELETE), len(MANY)), ((Op.INSERT,), len(MANY) // 3), ((Op.SCHEMA,), 0)],
    ids=["all", "some", "none"],
)
async def test_what_was_prepared_is_what_would_be_encoded_and_is_made_once_for_all(ops, wanted):
    counting = Counting()
    await asyncio.gather(*(counting.presenter.prepare(batch_of(*ops, rows=MANY), VIEW, 0) for _ in range(5)))
    assert counting.count == wanted
    assert counting.presenter.is_ready(batch_of(*ops, rows=MANY), VIEW)
    assert len(counting.events(batch_of(*ops, rows=MANY))) == wanted
    assert counting.count == wanted


@pytest.mark.parametrize(
    ("rows", "view", "options"),
    [
        (ROWS, VIEW, {}),
        (MANY, View(SSE, Format.OBJECTS_JSON, Include(after=True)), {}),
        (MANY, View(SSE, Format.PLAIN_JSON, Include(), envelope="debezium"), {}),
        (MANY, VIEW, {"where": "id > 3"}),
        (MANY, VIEW, {"columns": ("name",)}),
    ],
    ids=["few", "literals", "an envelope", "rows are looked at", "images are cut"],
)
async def test_what_python_would_do_row_by_row_is_left_to_the_event_loop(rows, view, options):
    """A thread would only compete for the interpreter's lock."""
    counting = Counting()
    plain = batch_of(Op.INSERT, rows=rows, tables=("users",))
    filter_ = Filter(TableTarget((TableName("app", "users"),)), FilterOptions((Op.INSERT,), **options))
    batch = FeedBatch("app", plain.chunk, filter_, plain.after)
    assert counting.presenter.is_ready(batch, view)
    await counting.presenter.prepare(batch, view, 0)
    assert counting.count == 0


async def test_one_who_leaves_while_events_are_made_for_it_leaves_the_others_theirs():
    counting = Counting()
    batch = batch_of(Op.INSERT, rows=MANY)
    leaving = asyncio.create_task(counting.presenter.prepare(batch, VIEW, 0))
    staying = asyncio.create_task(counting.presenter.prepare(batch, VIEW, 0))
    await asyncio.sleep(0)
    leaving.cancel()
    await staying
    assert len(counting.events(batch)) == len(MANY) // 3
