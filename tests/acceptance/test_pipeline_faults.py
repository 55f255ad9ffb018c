"""What a pipeline does when its sink is away, loses answers, refuses a row, or refuses the pipeline itself."""

import sqlite3

import pytest
from msgspec import structs

from databases import PASSWORD, MariaDb, Postgres, Servers
from pipelines import PipelinePlace
from tailrace.meta.pipeline import Mode
from tailrace.meta.pipeline_status import status_of
from tailrace.model.errors import SinkRefusedError, SinkUnavailableError
from tailrace.pipeline.sinks import MODES, SINKS, sink_of
from tailrace.pipeline.watcher import Watcher
from tailrace.sink_url import parse

pytest.importorskip("pyspark")

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def place(tmp_path, spark):
    made = PipelinePlace(tmp_path, spark)
    yield made
    made.close()


@pytest.fixture(scope="module")
def servers():
    started = Servers()
    yield started
    started.stop()


def execute(path, *statements):
    database = sqlite3.connect(path)
    for statement in statements:
        database.execute(statement)
    database.commit()
    database.close()


def test_a_row_that_is_refused_is_named_and_nothing_else_is_lost(place):
    place.create()
    place.run()
    path = place.directory / "p.db"
    place.shop.insert(1, 2)
    place.run()
    when = "WHEN new.qty = 13 BEGIN SELECT RAISE(ABORT, 'no thirteen'); END"
    execute(path, f"CREATE TRIGGER no_thirteen BEFORE INSERT ON orders {when}")
    for number in range(3, 20):
        place.shop.insert(number)
    for _ in range(2):
        with pytest.raises(SinkRefusedError) as refused:
            place.run()
        assert (refused.value.table, refused.value.key) == ("orders", "[13]")
        assert "item 13" not in str(refused.value)
    assert "the row with key [13] of table orders" in place.store.get("p").figures.problem
    assert place.rows("SELECT count(*) FROM orders") == [(2,)]
    execute(path, "DROP TRIGGER no_thirteen")
    place.run()
    assert place.verify().equal
    assert place.rows("SELECT count(*) FROM orders") == [(19,)]
    assert place.store.get("p").figures.problem == ""


def test_a_row_that_is_refused_while_it_is_copied_is_named_too(place):
    place.shop.insert(*range(1, 20))
    path = place.directory / "p.db"
    execute(path, "CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT CHECK (item <> 'item 13'), _offset INTEGER)")
    place.create()
    with pytest.raises(SinkRefusedError) as refused:
        place.run()
    assert (refused.value.table, refused.value.key) == ("orders", "[13]")
    place.shop.commit("UPDATE orders SET item = 'another' WHERE id = 13")
    place.run()
    assert place.verify().equal


class FaultySink:
    """A sink that does as a script says before it does its work: `away` and `lost`, an answer that does not come."""

    script = ()

    def __init__(self, sink):
        self._sink = sink

    def apply(self, batch):
        step = type(self).script[0] if type(self).script else ""
        type(self).script = type(self).script[1:]
        if step == "away":
            raise SinkUnavailableError("the sink is away")
        self._sink.apply(batch)
        if step == "lost":
            raise SinkUnavailableError("nobody answers")

    def __getattr__(self, name):
        return getattr(self._sink, name)


@pytest.mark.parametrize("mode", [Mode.CURRENT, Mode.APPEND])
def test_each_change_is_applied_once_by_a_sink_that_is_away_and_loses_answers(place, monkeypatch, mode):
    target = f"sqlite:///{place.directory / 'p.db'}"
    build = lambda url, mode, pipeline: FaultySink(sink_of(target, mode, pipeline=pipeline))  # noqa: E731
    monkeypatch.setitem(SINKS, "faulty", (build, tuple(Mode)))
    monkeypatch.setitem(MODES, "faulty", tuple(Mode))
    place.shop.insert(*range(1, 10))
    place.create(sink="faulty:", mode=mode)
    monkeypatch.setattr(FaultySink, "script", ("away", "away", "lost", "", "lost"))
    place.run()
    place.shop.commit("UPDATE orders SET qty = 50 WHERE id = 2", "DELETE FROM orders WHERE id = 3")
    monkeypatch.setattr(FaultySink, "script", ("lost",))
    place.run()
    for number in range(10, 15):
        place.shop.insert(number)
    monkeypatch.setattr(FaultySink, "script", ("away", "away", "lost"))
    place.run()
    assert FaultySink.script == ()
    assert place.verify().equal
    numbers = [number for (number,) in place.rows("SELECT number FROM _tailrace_batches ORDER BY number")]
    assert numbers == list(range(len(numbers)))
    if mode is Mode.APPEND:
        kinds = place.rows("SELECT _change_type, count(*) FROM orders GROUP BY 1 ORDER BY 1")
        assert kinds == [("delete", 1), ("insert", 5), ("read", 9), ("update_postimage", 1), ("update_preimage", 1)]


class SeeingAway(Watcher):
    """Notes what is told when a sink is away, and what the status of the pipeline says then."""

    def __init__(self, place):
        self.place, self.seen = place, []

    def away(self, problem):
        self.seen.append((problem, self.place.store.get("p").figures.problem))


def test_while_its_sink_is_away_a_pipeline_says_so(place, monkeypatch):
    target = f"sqlite:///{place.directory / 'p.db'}"
    build = lambda url, mode, pipeline: FaultySink(sink_of(target, mode, pipeline=pipeline))  # noqa: E731
    monkeypatch.setitem(SINKS, "faulty", (build, tuple(Mode)))
    monkeypatch.setitem(MODES, "faulty", tuple(Mode))
    place.shop.insert(1, 2)
    place.create(sink="faulty:", mode=Mode.CURRENT)
    watcher = SeeingAway(place)
    for key, stage in enumerate(("copying", "following"), start=10):
        monkeypatch.setattr(FaultySink, "script", ("away", "away"))
        place.run(watcher=watcher)
        assert watcher.seen == [("the sink is away", "the sink is away")], stage
        assert place.store.get("p").figures.problem == "", stage
        watcher.seen.clear()
        place.shop.insert(key)


@pytest.mark.parametrize("kind", [Postgres, MariaDb], ids=["postgresql", "mysql"])
@pytest.mark.parametrize("part", ["user", "password"])
def test_wrong_credentials_are_told_and_never_shown_and_mended_by_altering_them(place, servers, kind, part):
    url = servers.get(kind).url + f"?table=orders_{part}"
    wrong = url.replace(*{"user": ("//tailrace:", "//nobody:"), "password": ("p%40ss", "s3cret")}[part])
    place.shop.insert(1, 2)
    place.create(part, sink=wrong)
    with pytest.raises(SinkRefusedError, match="fix the sink's URL") as refused:
        place.run(part)
    found = place.store.get(part)
    shown = str(status_of(found, place.store.progress(part), sink=str(parse(found.definition.sink)), head=None))
    assert "fix the sink's URL" in found.figures.problem
    for secret in (PASSWORD, "p%40ss", "s3cret"):
        assert secret not in str(refused.value) + found.figures.problem + shown
    place.store.alter(structs.replace(found.definition, sink=url))
    place.run(part)
    assert place.verify(part).equal
