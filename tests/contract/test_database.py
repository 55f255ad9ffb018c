"""Facts about metadata databases of every kind: what is kept of texts, of connections, and of secrets."""

import subprocess
import sys
import threading
import traceback

import pytest
from sqlalchemy import text

from tailrace.clock import SystemClock
from tailrace.meta.consumer_store import Consumer, ConsumerStore, Strict
from tailrace.meta.engine import open_engine
from tailrace.meta.key_range import Registration
from tailrace.meta.pipeline import Definition
from tailrace.meta.range_store import RangeStore
from tailrace.meta.sink_store import SinkStore
from tailrace.meta.store import MetaStore
from tailrace.meta.table import METADATA
from tailrace.model.errors import InvalidRequestError, MetadataError
from tailrace.pipeline.store import PipelineStore

NAMES = ["one", "One", "öne", "ONE", "一"]
OPENINGS = 6
ROUNDS = 5
DEFINITION = Definition(name="p", source="shop", tables=("orders",), sink="mysql://me:s3cret@db/copy")


def run(url, *statements):
    engine = open_engine(url)
    with engine.begin() as connection:
        found = [connection.execute(text(statement)) for statement in statements]
        rows = [tuple(row) for one in found if one.returns_rows for row in one]
    engine.dispose()
    return rows


async def put_all(url):
    store = await MetaStore.open(url, SystemClock())
    for number, name in enumerate(NAMES):
        await RangeStore(store).put(Registration(7, "me", name, number, number))
        await ConsumerStore(store, SystemClock()).put(Consumer(name, 0, 1, Strict(), 5, number, "me"))
    await store.close()
    return await MetaStore.open(url, SystemClock())


async def assert_all_kept(store):
    pullers = (await RangeStore(store).load()).registrations
    assert {one.name: one.log_index for one in pullers} == {name: number for number, name in enumerate(NAMES)}
    consumers = await ConsumerStore(store, SystemClock()).consumers()
    assert {one.id: one.checkpoint_offset for one in consumers} == {name: number for number, name in enumerate(NAMES)}
    await store.close()


async def test_names_that_differ_in_case_or_accents_alone_are_different(metadata_url):
    await assert_all_kept(await put_all(metadata_url))


async def test_so_they_are_in_a_database_that_an_older_version_has_made(metadata_url):
    await (await MetaStore.open(metadata_url, SystemClock())).close()
    if metadata_url.startswith("mysql"):
        tables = [
            f"ALTER TABLE tailrace_{name} CONVERT TO CHARACTER SET latin1" for name in ("registration", "consumer")
        ]
        run(metadata_url, *tables)
    run(metadata_url, "DELETE FROM tailrace_migration WHERE version > 8")
    await assert_all_kept(await put_all(metadata_url))


def test_sinks_of_such_names_are_different_too(metadata_url):
    store = SinkStore.open(metadata_url, SystemClock())
    for name in NAMES:
        store.put(name, source=name, url="redis://h", subscription="sub_1")
    assert {kept.name: kept.source for kept in store.all()} == {name: name for name in NAMES}
    store.close()


def test_pipelines_of_such_names_and_keys_are_kept_to_the_letter(metadata_url):
    store = PipelineStore.open(metadata_url, SystemClock())
    for name in NAMES:
        store.create(Definition(name=name, source="shop", tables=("注文",), sink="console:"))
    assert sorted(one.definition.name for one in store.all()) == sorted(NAMES)
    assert store.get("一").definition.tables == ("注文",)
    store.close()


def test_what_cannot_be_kept_is_refused_and_not_shown(metadata_url):
    store = PipelineStore.open(metadata_url, SystemClock())
    for sink in (f"mysql://me:s3cret@db/{'x' * 4096}", "mysql://me:s3cret@db/a\0b"):
        with pytest.raises(InvalidRequestError, match="the URL of the sink") as caught:
            store.create(Definition(name="p", source="shop", tables=("orders",), sink=sink))
        assert "s3cret" not in str(caught.value)
    assert store.all() == []
    store.close()


def test_no_value_is_shown_when_the_database_refuses(metadata_url):
    store = PipelineStore.open(metadata_url, SystemClock())
    run(metadata_url, "DROP TABLE subscribe")
    with pytest.raises(MetadataError) as caught:
        store.create(DEFINITION)
    assert "s3cret" not in "".join(traceback.format_exception(caught.value))
    store.close()


def test_a_connection_that_was_ended_meanwhile_is_made_again(metadata_url):
    store = PipelineStore.open(metadata_url, SystemClock())
    store.create(DEFINITION)
    if metadata_url.startswith("mysql"):
        others = "FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()"
        run(metadata_url, *(f"KILL {number}" for (number,) in run(metadata_url, f"SELECT id {others}")))
    elif metadata_url.startswith("postgresql"):
        mine = "datname = current_database() AND pid <> pg_backend_pid()"
        run(metadata_url, f"SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE {mine}")
    assert store.get("p").definition == DEFINITION
    store.close()


def test_several_may_open_an_empty_database_at_once(metadata_url):
    for _ in range(ROUNDS):
        opened = open_at_once(metadata_url)
        assert [one for one in opened if isinstance(one, BaseException)] == []
        opened[0].create(DEFINITION)
        assert {one.get("p").definition.name for one in opened} == {"p"}
        for one in opened:
            one.close()
        run(metadata_url, *(f"DROP TABLE {table.name}" for table in METADATA.tables.values()))


def open_at_once(url):
    """Return what the openings of a database gave: stores, or errors."""
    opened, begin = [], threading.Barrier(OPENINGS)

    def open_one():
        begin.wait()
        try:
            opened.append(PipelineStore.open(url, SystemClock()))
        except Exception as error:
            opened.append(error)

    threads = [threading.Thread(target=open_one) for _ in range(OPENINGS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return opened


def test_a_file_that_is_made_is_for_its_owner_alone_and_one_that_is_there_stays_as_it_is(tmp_path):
    file = tmp_path / "sinks.db"
    SinkStore.open(f"sqlite:///{file}", SystemClock()).close()
    assert file.stat().st_mode & 0o777 == 0o600
    file.chmod(0o640)
    SinkStore.open(f"sqlite:///{file}", SystemClock()).close()
    assert file.stat().st_mode & 0o777 == 0o640


def test_what_one_of_several_connections_wrote_is_there_for_another_process(tmp_path):
    url = f"sqlite:///{tmp_path / 'sinks.db'}"
    first = SinkStore.open(url, SystemClock())
    first.put("out", source="shop", url="redis:", subscription="one")
    second = SinkStore.open(url, SystemClock())
    look = "import sqlite3, sys; print(sqlite3.connect(sys.argv[1]).execute(sys.argv[2]).fetchall())"
    command = [sys.executable, "-c", look, str(tmp_path / "sinks.db"), "SELECT subscription FROM tailrace_sink"]
    for name in ("two", "three"):
        first.put("out", source="shop", url="redis:", subscription=name)
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        assert done.stdout == f"[('{name}',)]\n"
    first.close()
    second.close()
