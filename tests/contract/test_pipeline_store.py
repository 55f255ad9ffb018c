"""Facts about pipelines in the metadata database, on every kind of it."""

import pytest
import sqlalchemy
from msgspec import structs

from tailrace.meta.pipeline import Copying, Figures, SinkState, Stage
from tailrace.model.key_interval import KeyInterval
from tailrace.pipeline.definition import Definition
from tailrace.pipeline.errors import LeaseError, PipelineExistsError, UnknownPipelineError
from tailrace.pipeline.store import PipelineStore
from tailrace.testing.clock import FakeClock

DEFINITION = Definition(name="p", source="shop", tables=("orders", "lines"), sink="delta:///lake/{table}")
PLAN = {"orders": [KeyInterval(None, "[5]"), KeyInterval("[5]", None)], "lines": [KeyInterval()]}


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def store(metadata_url, clock):
    opened = PipelineStore.open(metadata_url, clock)
    opened.create(DEFINITION)
    yield opened
    opened.close()


def registered(store, lease):
    store.register(lease, PLAN, source="shop", version=40, sink_state=SinkState.EMPTY, figures=Figures(rows=9))
    store.subscribed(lease, "sub_7")


def rows(store, table):
    with store.database.engine.connect() as connection:
        return [dict(row._mapping) for row in connection.execute(sqlalchemy.text(f"SELECT * FROM {table}"))]


def test_the_tables_have_the_columns_of_the_seed(store):
    lease = store.acquire("p", "me", 10)
    registered(store, lease)
    (subscribed, _) = rows(store, "subscribe")
    assert list(subscribed) == [
        "cluster_id",
        "db_name",
        "table_name",
        "subscribe_name",
        "db_id",
        "table_id",
        "master_addrs",
        "sink",
        "cancel",
        "owner",
    ]
    assert subscribed["db_name"] == "shop"
    assert subscribed["owner"] == "me"
    kept = rows(store, "progress")
    assert list(kept[0]) == [
        "db_name",
        "table_name",
        "subscribe_name",
        "range_id",
        "progress_stage",
        "progress_init_snapshot_version",
        "progress_current_snapshot_version",
        "progress_last_snapshot_key",
        "progress_last_log_index",
    ]
    assert {(row["table_name"], row["range_id"]) for row in kept} == {("orders", 1), ("orders", 2), ("lines", 1)}
    keys = {
        table: sqlalchemy.inspect(store.database.engine).get_pk_constraint(table)["constrained_columns"]
        for table in ("subscribe", "progress")
    }
    assert keys["subscribe"] == ["cluster_id", "db_name", "table_name", "subscribe_name"]
    assert keys["progress"] == ["db_name", "table_name", "subscribe_name", "range_id"]


def test_a_name_is_given_once(store):
    with pytest.raises(PipelineExistsError):
        store.create(DEFINITION)
    assert [one.definition for one in store.all()] == [DEFINITION]


def test_a_pipeline_that_is_not_there_is_named(store):
    for use in (store.get, store.cancel, lambda name: store.pause(name, paused=True)):
        with pytest.raises(UnknownPipelineError, match="'q'"):
            use("q")
    with pytest.raises(UnknownPipelineError, match="'q'"):
        store.acquire("q", "me", 10)


def test_only_one_worker_has_a_pipeline_until_its_lease_ends(store, clock):
    first = store.acquire("p", "one", 10)
    with pytest.raises(LeaseError, match="one"):
        store.acquire("p", "two", 10)
    clock.advance(9)
    store.renew(first, 10)
    clock.advance(9)
    with pytest.raises(LeaseError):
        store.acquire("p", "two", 10)
    clock.advance(2)
    second = store.acquire("p", "two", 10)
    assert second.term > first.term
    assert store.get("p").owner == "two"


def test_a_worker_that_was_taken_over_writes_nothing_more(store, clock):
    first = store.acquire("p", "one", 10)
    registered(store, first)
    clock.advance(11)
    store.acquire("p", "two", 10)
    before = rows(store, "progress"), rows(store, "tailrace_pipeline")
    copying = Copying(0, "orders", {1: KeyInterval(None, "[5]")}, (1,))
    for write in (
        lambda: store.renew(first, 10),
        lambda: store.release(first),
        lambda: store.begin_copy(first, copying),
        lambda: store.finish_copy(first, copying, version=50, rows={1: 5}),
        lambda: store.advance(first, 99, Figures()),
        lambda: store.fail(first, Figures()),
        lambda: store.reset(first),
        lambda: store.compared(first),
        lambda: store.rebase(first, version=9, subscription=None),
        lambda: store.remove(first),
    ):
        with pytest.raises(LeaseError):
            write()
    assert (rows(store, "progress"), rows(store, "tailrace_pipeline")) == before


def test_a_lease_that_is_given_up_can_be_taken_at_once(store):
    store.release(store.acquire("p", "one", 10))
    assert not store.get("p").leased
    assert rows(store, "subscribe")[0]["owner"] == ""
    store.acquire("p", "two", 10)


def test_what_is_copied_is_noted_by_range_and_the_last_key_is_kept(store):
    lease = store.acquire("p", "me", 10)
    registered(store, lease)
    assert {one.stage for one in store.progress("p")} == {Stage.SNAPSHOT}
    copying = Copying(0, "orders", {1: KeyInterval(None, "[5]"), 2: KeyInterval("[5]", "[8]")}, (1,))
    store.begin_copy(lease, copying)
    assert store.get("p").copying == copying
    store.finish_copy(lease, copying, version=44, rows={1: 5, 2: 3})
    assert store.get("p").copying is None
    _, first, second = store.progress("p")
    assert (first.stage, first.last_key, first.rows_copied) == (Stage.INCREMENTAL_LOG, "[5]", 5)
    assert (second.stage, second.last_key, second.rows_copied) == (Stage.SNAPSHOT, "[8]", 3)
    assert second.left == KeyInterval("[8]", None)
    assert (second.init_version, second.current_version) == (40, 44)


def test_the_log_index_only_rises(store):
    lease = store.acquire("p", "me", 10)
    registered(store, lease)
    store.advance(lease, 60, Figures(head=70))
    store.advance(lease, 50, Figures(head=70))
    assert {one.last_log_index for one in store.progress("p")} == {60}


def test_a_reset_forgets_the_progress(store):
    lease = store.acquire("p", "me", 10)
    registered(store, lease)
    store.reset(lease)
    found = store.get("p")
    assert (store.progress("p"), found.generation, found.subscription) == ([], 1, None)


def test_a_pipeline_that_begins_anew_at_another_offset_keeps_its_ranges(store):
    lease = store.acquire("p", "me", 10)
    registered(store, lease)
    store.rebase(lease, version=90, subscription="sub_9")
    found = store.get("p")
    assert (found.generation, found.sink_state, found.subscription) == (1, SinkState.STALE, "sub_9")
    assert {(one.init_version, one.last_log_index, one.stage) for one in store.progress("p")} == {
        (90, 90, Stage.SNAPSHOT)
    }


def test_what_a_sink_had_is_kept_until_it_was_compared(store):
    lease = store.acquire("p", "me", 10)
    assert store.get("p").sink_state is SinkState.EMPTY
    store.register(lease, PLAN, source="shop", version=40, sink_state=SinkState.STALE, figures=Figures())
    assert store.get("p").sink_state is SinkState.STALE
    store.compared(lease)
    assert store.get("p").sink_state is SinkState.SHARED


def test_an_altered_pipeline_is_altered_in_the_tables_of_jimdb_too(store):
    made = structs.replace(DEFINITION, server="http://elsewhere:1", sink="console:")
    store.alter(made)
    assert store.get("p").definition == made
    assert {(row["master_addrs"], row["sink"]) for row in rows(store, "subscribe")} == {
        ("http://elsewhere:1", "console:")
    }
    with pytest.raises(UnknownPipelineError):
        store.alter(structs.replace(made, name="q"))


def test_a_failed_pipeline_cannot_be_copied_on(store):
    lease = store.acquire("p", "me", 10)
    registered(store, lease)
    store.fail(lease, Figures(problem="gone"))
    assert {one.stage for one in store.progress("p")} == {Stage.FAILED}
    with pytest.raises(Exception, match="from stage failed"):
        store.subscribed(lease, None)


def test_a_removed_pipeline_leaves_nothing(store):
    lease = store.acquire("p", "me", 10)
    registered(store, lease)
    store.cancel("p")
    assert store.get("p").cancelled
    store.remove(lease)
    for table in ("subscribe", "progress", "tailrace_pipeline", "tailrace_pipeline_range"):
        assert rows(store, table) == []


def test_two_stores_on_one_database_see_the_same(store, metadata_url, clock):
    other = PipelineStore.open(metadata_url, clock)
    store.acquire("p", "one", 10)
    with pytest.raises(LeaseError):
        other.acquire("p", "two", 10)
    other.close()


def test_tables_come_and_go_with_their_ranges_and_their_rows_of_subscribe(store):
    lease = store.acquire("p", "me", 10)
    registered(store, lease)
    store.advance(lease, 55, Figures(rows=9))
    store.begin_copy(lease, Copying(3, "lines", {1: KeyInterval()}, (1,)))
    store.alter(structs.replace(DEFINITION, tables=("orders", "notes")))
    shown = {row["table_name"]: row for row in rows(store, "subscribe")}
    assert (set(shown), shown["notes"]["owner"], shown["notes"]["table_id"]) == ({"orders", "notes"}, "me", 3)
    store.drop_tables(lease, {"lines"})
    assert store.get("p").copying is None
    store.add_tables(
        lease,
        {"notes": [KeyInterval()]},
        source="shop",
        version=40,
        reached=55,
        stage=Stage.SNAPSHOT,
        sink_state=SinkState.SHARED,
        figures=Figures(rows=12),
    )
    assert store.get("p").sink_state is SinkState.SHARED
    assert [(one.table, one.stage, one.init_version, one.last_log_index) for one in store.progress("p")] == [
        ("notes", Stage.SNAPSHOT, 40, 55),
        ("orders", Stage.SNAPSHOT, 40, 55),
        ("orders", Stage.SNAPSHOT, 40, 55),
    ]
    assert store.get("p").figures.rows == 12
