"""Terms and consumers in the metadata database."""

import pytest

from tailrace.clock import SystemClock
from tailrace.meta.consumer_store import Bounded, Consumer, ConsumerStore, Strict, TermStore
from tailrace.meta.store import MetaStore


@pytest.fixture
async def store(metadata_url):
    made = await MetaStore.open(metadata_url, SystemClock())
    yield made
    await made.close()


async def test_each_opening_begins_a_term_and_the_first_is_that_of_all_commits_before_it(store):
    terms = TermStore(store)
    assert await terms.begin(0, 7) == [(1, 1)]
    assert await terms.begin(0, 9) == [(1, 1), (9, 2)]
    assert await terms.begin(1, 1) == [(1, 1)]
    assert await terms.begin(0, 12) == [(1, 1), (9, 2), (12, 3)]


async def test_a_term_without_a_commit_is_forgotten_but_its_number_is_not_used_again(store):
    terms = TermStore(store)
    await terms.begin(0, 1)
    for _ in range(3):
        await terms.begin(0, 5)
    assert await terms.begin(0, 5) == [(1, 1), (5, 5)]
    assert await terms.begin(0, 8) == [(1, 1), (5, 5), (8, 6)]


async def test_a_log_that_begins_anew_keeps_rising_terms(store):
    terms = TermStore(store)
    await terms.begin(0, 1)
    await terms.begin(0, 50)
    assert await terms.begin(0, 1) == [(1, 3)]


async def test_consumers_come_back_as_they_were_kept(store):
    consumers = ConsumerStore(store, SystemClock())
    one = Consumer("one", 0, 1, Strict(), 5, 9, "me")
    two = Consumer("two", 1, 3, Bounded(1, 2, 3), 0, 0, "you", ended="CANCELLED")
    await consumers.put(one)
    await consumers.put(two)
    assert await consumers.consumers() == [one, two]
    await consumers.put(Consumer("one", 0, 2, Bounded(4, 5), 6, 10, "me"))
    assert (await consumers.consumers())[1] == Consumer("one", 0, 2, Bounded(4, 5), 6, 10, "me")
    await consumers.remove(("you", "two"))
    assert [consumer.id for consumer in await consumers.consumers()] == ["one"]


async def test_a_checkpoint_moves_forward_alone(store):
    consumers = ConsumerStore(store, SystemClock())
    other = Consumer("one", 0, 1, Strict(), 5, 9, "you")
    await consumers.put(other)
    await consumers.put(Consumer("one", 0, 1, Strict(), 5, 9, "me"))
    for checkpoint, offset in ((7, 20), (6, 15)):
        await consumers.acknowledge(("me", "one"), checkpoint, offset)
    untouched, found = await consumers.consumers()
    assert (found.checkpoint, found.checkpoint_offset) == (7, 20)
    assert untouched == other
