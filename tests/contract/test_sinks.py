"""One contract, all sinks, all of their modes."""

from collections.abc import Sequence

import msgspec
import pytest

from databases import Servers
from sink_changes import ChangingSource
from sink_places import PLACES, rows_of
from tailrace.model.errors import SinkRefusedError
from tailrace.pipeline.sink.base import Mode

CASES = [pytest.param((kind, mode), id=f"{kind}-{mode}") for kind, place in PLACES.items() for mode in place.kinds]


@pytest.fixture(scope="session")
def servers():
    servers = Servers()
    yield servers
    servers.stop()


@pytest.fixture(params=CASES)
def place(request, tmp_path, servers):
    kind, mode = request.param
    return PLACES[kind](tmp_path, mode, servers)


@pytest.fixture
def source():
    return ChangingSource()


def opened(place, source):
    sink = place.sink()
    sink.open(source.schemas)
    return sink


def check(place, sink, table):
    """Compare a table of the source with what the sink has, by its own word and by another's."""
    rows = rows_of(sink, table.schema)
    assert {key: {name: row[name] for name in table.columns} for key, row in rows.items()} == table.rows
    contents = place.contents(table.name)
    if place.mode is Mode.CURRENT:
        assert len(contents) == len(table.rows)
    if place.mode is Mode.HISTORY:
        kept = [(*(row[n] for n in table.key), row["valid_from_offset"], row["valid_to_offset"]) for row in contents]
        told = [(*one["key"], one["valid_from_offset"], one["valid_to_offset"]) for one in table.versions]
        assert sorted(kept, key=str) == sorted(told, key=str)


def three_batches(source):
    """Return batches with everything in them: several changes of a key, deletes, keys that change and come again."""
    orders = source.table("orders")
    lines = source.table("lines", key=("id", "customer"))
    for number in range(20):
        orders.insert(number, f"customer {number}", number / 2)
        lines.insert(number, "Ann", None)
    orders.update(3, total=9.0)
    source.commit()
    orders.delete(4)
    yield source.batch()
    orders.update(5, id=105)
    orders.update(6, customer=None)
    orders.update(6, customer="Six")
    source.commit()
    orders.insert(4, "again", -1.0)
    orders.delete(7)
    source.commit()
    orders.update(105, total=5.5)
    yield source.batch()
    orders.delete(105)
    source.commit()
    orders.insert(105, "new", None)
    orders.update(8, id=7)
    for number in range(20):
        lines.update((number, "Ann"), customer="Bob")
    yield source.batch()


def test_each_batch_leaves_the_sink_equal_to_the_source(place, source):
    sink = place.sink()
    for number, batch in enumerate(three_batches(source)):
        if number == 0:
            sink.open(source.schemas)
            assert sink.applied() is None
        sink.apply(batch)
        assert sink.applied() == number
        for table in source.tables:
            check(place, sink, table)
    sink.close()
    sink.close()


def test_a_sink_that_is_opened_again_goes_on_where_it_was(place, source):
    for number, batch in enumerate(three_batches(source)):
        sink = opened(place, source)
        assert sink.applied() == (number - 1 if number else None)
        sink.apply(batch)
        sink.close()
        sink = opened(place, source)
        assert sink.progress().offsets == batch.offsets
        for table in source.tables:
            check(place, sink, table)
        sink.close()


@pytest.mark.parametrize("again", ["same", "other"], ids=["to the same sink", "to one that was opened again"])
def test_a_batch_that_is_given_again_changes_nothing(place, source, again):
    sink = place.sink()
    given = []
    for batch in three_batches(source):
        given.append(batch)
        if len(given) == 1:
            sink.open(source.schemas)
        sink.apply(batch)
        before = {table.name: place.contents(table.name) for table in source.tables}
        if again == "other":
            sink.close()
            sink = opened(place, source)
        for one in given:
            sink.apply(one)
        assert {table.name: place.contents(table.name) for table in source.tables} == before
        for table in source.tables:
            check(place, sink, table)
    sink.close()


class FailingTables(Sequence):
    """The tables of a batch, of which one cannot be had: something fails when it is asked for the `at`-th time."""

    def __init__(self, tables, at):
        self.tables, self.at, self.asked = tables, at, 0

    def __len__(self):
        return len(self.tables)

    def __getitem__(self, number):
        self.asked += 1
        if self.asked == self.at and number < len(self.tables):
            raise TornError
        return self.tables[number]


class TornError(Exception):
    pass


@pytest.mark.parametrize(
    ("at", "opened_again"),
    [(2, True), (5, False), (11, False), (11, True)],
)
def test_a_batch_that_fails_in_the_middle_is_applied_wholly_when_it_is_given_again(place, source, at, opened_again):
    sink = place.sink()
    for number, batch in enumerate(three_batches(source)):
        if number == 0:
            sink.open(source.schemas)
        try:
            sink.apply(msgspec.structs.replace(batch, tables=FailingTables(batch.tables, at)))
        except TornError:
            assert sink.applied() == (number - 1 if number else None)
        if opened_again:
            sink.close()
            sink = opened(place, source)
        sink.apply(batch)
        for table in source.tables:
            check(place, sink, table)
    sink.close()


def test_a_number_that_the_sink_has_with_other_changes_is_refused(place, source):
    sink = place.sink()
    batches = list(three_batches(source))
    sink.open(source.schemas)
    for batch in batches:
        sink.apply(batch)
    with pytest.raises(SinkRefusedError, match="Reset the pipeline"):
        sink.apply(msgspec.structs.replace(batches[1], offsets={"shop": 10_000}))
    sink.close()
