"""A sink and a pipeline of one name have nothing in common: neither marks at a target, nor dead letters."""

import pytest

from brokers import PASSWORD_IN_URL, Redis
from sink_changes import ChangingSource
from tailrace.clock import SystemClock
from tailrace.message.outbox import Outbox
from tailrace.message.shape import ShapeOptions
from tailrace.message.targets import target_of
from tailrace.meta.dead_letter import LetterDraft, LetterState
from tailrace.meta.dead_letter_store import DeadLetterStore
from tailrace.meta.pipeline import Definition
from tailrace.pipeline.sink.message import changes_of
from tailrace.pipeline.sinks import MessageOptions, sink_of
from tailrace.pipeline.store import PipelineStore
from tailrace.sink_url import parse

NAME = "orders"


@pytest.fixture
def letters(metadata_url):
    opened = DeadLetterStore.open(metadata_url, SystemClock())
    yield opened
    opened.close()


@pytest.fixture
def url(brokers):
    return f"redis://:{PASSWORD_IN_URL}@127.0.0.1:{brokers.get(Redis).port}/0?stream=same.{{table}}"


def outbox(url, letters):
    made = Outbox(NAME, target_of(parse(url), NAME), ShapeOptions(), letters, SystemClock())
    made.open(ChangingSource().schemas)
    return made


def pipeline_sink(url, metadata_url, schemas):
    made = sink_of(url, None, pipeline=NAME, messages=MessageOptions(metadata_url))
    made.open(schemas)
    return made


def test_each_has_its_own_mark_and_letters(url, metadata_url, letters):
    source = ChangingSource(pipeline=NAME)
    table = source.table()
    table.insert(1, "Ann", 1.0)
    batch = source.batch()
    (change,) = changes_of(batch)
    letters.park(NAME, [LetterDraft("shop/1", change, False, LetterState.REFUSED, "no")], 10)

    live = outbox(url, letters)
    live.deliver([], b"live")
    piped = pipeline_sink(url, metadata_url, source.schemas)
    piped.apply(batch)
    assert len(letters.parked()) == 1  # the pipeline's change is not behind the sink's
    live.close()
    piped.close()

    again = outbox(url, letters)
    assert again.mark == b"live"
    again.close()
    piped = pipeline_sink(url, metadata_url, source.schemas)
    assert piped.progress().number == 0
    piped.close()


def test_a_pipeline_counts_its_letters_and_takes_them_with_it(metadata_url, letters):
    store = PipelineStore.open(metadata_url, SystemClock())
    store.create(Definition(name=NAME, source="shop", tables=("orders",), sink="redis://h"))
    source = ChangingSource()
    source.table().insert(1, "Ann", 1.0)
    (change,) = changes_of(source.batch())
    draft = LetterDraft("shop/1", change, False, LetterState.REFUSED, "no")
    letters.park(NAME, [draft], 10)
    assert store.letters_of_all() == {}
    letters.park(f"pipeline/{NAME}", [draft], 10)
    assert store.letters_of_all() == {NAME: 1}
    store.remove(store.acquire(NAME, "me", 60))
    assert [letter.sink for letter in letters.parked()] == [NAME]
    store.close()
