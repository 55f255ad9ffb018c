"""Facts about sinks in the metadata database, on every kind of it."""

import pytest

from tailrace.meta.sink_store import SinkFigures, SinkState, SinkStore
from tailrace.model.errors import NotFoundError
from tailrace.testing.clock import FakeClock


@pytest.fixture
def store(metadata_url):
    opened = SinkStore.open(metadata_url, FakeClock())
    yield opened
    opened.close()


def test_a_sink_is_kept_with_its_subscription_and_how_it_goes(store):
    assert store.get("s") is None
    store.put("s", source="shop", url="redis://h", subscription="sub_1")
    figures = SinkFigures(SinkState.WAITING, 7, 5, 2, 9, "the target is away")
    store.note("s", figures)
    kept = store.get("s")
    assert (kept.name, kept.source, kept.url, kept.subscription) == ("s", "shop", "redis://h", "sub_1")
    assert kept.figures == figures


def test_a_sink_that_begins_anew_replaces_what_was_kept(store):
    store.put("s", source="shop", url="redis://h", subscription="sub_1")
    store.note("s", SinkFigures(SinkState.FAILED))
    store.put("s", source="shop", url="redis://h", subscription="sub_2")
    assert (store.get("s").subscription, store.get("s").figures) == ("sub_2", SinkFigures())


def test_a_sink_is_known_before_it_has_a_subscription_and_where_it_goes_to_now(store):
    store.meet("s", source="shop", url="redis://h", new=False)
    assert store.get("s") is None
    store.meet("s", source="shop", url="redis://h")
    assert (store.get("s").url, store.get("s").subscription) == ("redis://h", "")
    store.put("s", source="shop", url="redis://h", subscription="sub_1")
    store.note("s", SinkFigures(SinkState.FAILED))
    store.meet("s", source="shop", url="redis://other")
    kept = store.get("s")
    assert (kept.url, kept.subscription, kept.figures.state) == ("redis://other", "sub_1", SinkState.FAILED)


def test_a_sink_began_when_it_was_first_kept_unless_it_goes_on(tmp_path):
    clock = FakeClock()
    store = SinkStore.open(f"sqlite:///{tmp_path / 'sinks.db'}", clock)
    first = store.put("s", source="shop", url="redis://h", subscription="sub_1")
    clock.advance(1)
    assert store.put("s", source="shop", url="redis://h", subscription="sub_2", began_us=first) == first
    assert store.get("s").began_us == first
    store.remove("s")
    assert store.put("s", source="shop", url="redis://h", subscription="sub_3") > first
    store.close()


def test_sinks_are_listed_by_name_until_they_are_removed(store):
    for name in ("b", "a"):
        store.put(name, source="shop", url="redis://h", subscription="sub_1")
    assert [kept.name for kept in store.all()] == ["a", "b"]
    store.remove("a")
    assert [kept.name for kept in store.all()] == ["b"]
    with pytest.raises(NotFoundError, match="sink ls"):
        store.remove("a")
