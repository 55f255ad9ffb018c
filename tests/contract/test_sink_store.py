"""Facts about sinks in the metadata database, on every kind of it."""

import pytest

from tailrace.meta.sink_store import LIVES_S, SinkFigures, SinkRun, SinkState, SinkStore
from tailrace.model.errors import NotFoundError, SinkRefusedError
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


def figures(state, time_s=0, offset=0):
    return SinkFigures(state, offset, time_us=time_s * 1_000_000)


def test_a_run_that_has_connected_takes_the_sink_from_the_one_before_it(store):
    store.put("s", source="shop", url="redis://h", subscription="sub_1")
    old, new = (SinkRun(store, "s") for _ in range(2))
    for state in (SinkState.WAITING, SinkState.RUNNING, SinkState.RUNNING):
        old.note(figures(state, 1, offset=1))
    new.note(figures(SinkState.RUNNING, 2, offset=2))
    for state in (SinkState.RUNNING, SinkState.FAILED):
        with pytest.raises(SinkRefusedError, match="another process has taken over the sink 's'"):
            old.note(figures(state, 3, offset=3))
    new.note(figures(SinkState.RUNNING, 3, offset=4))
    assert store.get("s").figures.offset == 4


@pytest.mark.parametrize("state", [SinkState.WAITING, SinkState.FAILED])
def test_a_run_that_never_connects_leaves_the_sink_to_the_one_that_has_it(store, state):
    store.put("s", source="shop", url="redis://h", subscription="sub_1")
    good, other = (SinkRun(store, "s") for _ in range(2))
    good.note(figures(SinkState.RUNNING, 1))
    other.note(figures(state, 2))
    good.note(figures(SinkState.RUNNING, 3))
    assert store.get("s").figures.state is SinkState.RUNNING
    other.note(figures(state, 3 + LIVES_S))
    assert store.get("s").figures.state is state, "one that was killed says nothing more"
    good.note(figures(SinkState.RUNNING, 4 + LIVES_S))
    assert store.get("s").figures.state is SinkState.RUNNING, "it was only slow"


def test_a_sink_that_is_not_kept_is_not_noted(store):
    SinkRun(store, "s").note(figures(SinkState.RUNNING))
    assert store.get("s") is None
