"""Facts about copying tables that grow meanwhile, through a server on real sockets; Spark is not started."""

import apsw
import msgspec
import pytest

from running import Running
from serving import wait_until
from tailrace.client.bulk_rows import BulkRowsClient
from tailrace.clock import SystemClock
from tailrace.meta.pipeline import Stage
from tailrace.model.key_interval import KeyInterval
from tailrace.pipeline.copy import CopyOptions
from tailrace.pipeline.definition import Definition
from tailrace.pipeline.job import Job, SparkChoice, Watcher
from tailrace.pipeline.store import PipelineStore

PAGE_ROWS = 10
BATCHES_MAX = 40

TABLES = {
    "numbered": ("id INTEGER PRIMARY KEY, mark INTEGER", [(7, 0), (-3, 1), (2, 2)]),
    "plain": ("mark INTEGER", [(0,), (1,), (2,)]),
    "named": ("name TEXT COLLATE NOCASE PRIMARY KEY, mark INTEGER", [("a", 0), ("B", 1), ("c", 2)]),
    "falling": ("id INT, mark INTEGER, PRIMARY KEY (id DESC)", [(1, 0), (3, 1), (2, 2)]),
    "paired": (
        "name TEXT, id INTEGER, mark INTEGER, PRIMARY KEY (name, id DESC)",
        [("b", None, 0), ("b", None, 1), (None, 9, 2), ("a", 5, 3), ("b", 4, 4), ("b", -4, 5), (None, None, 6)],
    ),
    "nulls": ("name TEXT, id INTEGER, mark INTEGER, PRIMARY KEY (name, id)", [(None, None, 0), (None, None, 1)]),
    "mixed": ("k PRIMARY KEY, mark INTEGER", [("z", 0), (9, 1), (b"\x00", 2), (float("inf"), 3)]),
}
LAST = {
    "numbered": [7],
    "plain": [3],
    "named": ["c"],
    "falling": [3],
    "paired": ["b", 4],
    "nulls": [None, None],
    "mixed": [{"t": "bytes", "b64": "AA=="}],
}


class GrowingStore(PipelineStore):
    """Lets somebody write whenever a batch begins. A copy that does not end fails."""

    grow = staticmethod(lambda: None)
    batches = 0

    def begin_copy(self, lease, copying):
        self.batches += 1
        assert self.batches < BATCHES_MAX
        self.grow()
        super().begin_copy(lease, copying)


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    directory = tmp_path_factory.mktemp("shop")
    database = apsw.Connection(str(directory / "shop.db"))
    database.set_busy_timeout(60_000)
    for name, (columns, rows) in TABLES.items():
        database.execute(f"CREATE TABLE {name} ({columns})")
        with database:
            database.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * len(rows[0]))})", rows)
    database.execute("CREATE TABLE grows (shelf TEXT, id INTEGER, PRIMARY KEY (shelf, id))")
    database.execute("CREATE TABLE other (id INTEGER PRIMARY KEY, note TEXT)")
    database.execute("CREATE TABLE long (name TEXT PRIMARY KEY)")
    server = Running(directory / "data", shop=f"sqlite:///{directory / 'shop.db'}")
    client = BulkRowsClient(server.url)
    wait_until(lambda: len(client.info("shop").tables) == len(TABLES) + 3, "the tables known")
    server.database, server.client = database, client
    yield server
    client.close()
    server.stop()
    database.close()


@pytest.fixture
def store(tmp_path):
    opened = GrowingStore.open(f"sqlite:///{tmp_path / 'pipelines.db'}", SystemClock())
    yield opened
    opened.close()


def commit(shop, *statements):
    """Run statements in one transaction. Not by `with`: apsw would wait for the server without letting it run."""
    for statement in ("BEGIN IMMEDIATE", *statements, "COMMIT"):
        shop.database.execute(statement)


def append(shop, table, values, count=3 * PAGE_ROWS):
    """Append rows after the last one of a table."""
    commit(
        shop,
        "WITH RECURSIVE n(i) AS (SELECT ifnull(max(id), 0) + 1 FROM "
        f"{table} UNION ALL SELECT i + 1 FROM n LIMIT {count}) INSERT INTO {table} SELECT {values} FROM n",
    )


def job(store, tmp_path, ranges):
    return Job(store, tmp_path / "work", None, SparkChoice(), SystemClock(), CopyOptions(ranges, PAGE_ROWS))


def copy(store, shop, tmp_path, ranges, *tables):
    """Copy tables, without following the log."""
    sink = f"sqlite:///{tmp_path / 'copy.db'}"
    store.create(Definition(name="p", source="shop", tables=tables, sink=sink, server=shop.url))

    def is_copied():
        return all(one.stage is Stage.INCREMENTAL_LOG for one in store.progress("p"))

    job(store, tmp_path, ranges).run("p", once=True, wait=False, watcher=Watcher(), stopped=is_copied)


def copied(tmp_path, table, columns):
    database = apsw.Connection(str(tmp_path / "copy.db"))
    try:
        return set(database.execute(f"SELECT {columns} FROM {table}"))
    finally:
        database.close()


def keys_logged(shop, store, table):
    """Return the keys of all changes that the pipeline follows after the copy."""
    (version,) = {one.init_version for one in store.progress("p")}
    head = shop.client.committed("shop", table)
    found = shop.client.batches("shop", version, head, [table])
    return {tuple(msgspec.json.decode(key)) for _, batch in found for key in batch.column("key").to_pylist()}


@pytest.mark.parametrize("table", TABLES)
def test_the_greatest_key_of_a_table_bounds_all_of_its_rows(shop, table):
    last = shop.client.last_key("shop", table)
    assert msgspec.json.decode(last) == LAST[table]
    pages = shop.client.rows("shop", table, KeyInterval(None, last))
    images = [msgspec.json.decode(image) for page in pages for image in page.rows.column("image").to_pylist()]
    assert sorted(image["mark"] for image in images) == list(range(len(TABLES[table][1])))


@pytest.mark.parametrize("ranges", [1, 4])
def test_a_table_that_grows_at_its_end_more_quickly_than_it_is_copied_is_copied(shop, store, tmp_path, ranges):
    append(shop, "grows", "'a', i", 35)
    append(shop, "grows", "'b', i", 35)
    before = set(shop.database.execute("SELECT shelf, id FROM grows"))
    store.grow = lambda: append(shop, "grows", "'b', i")
    copy(store, shop, tmp_path, ranges, "grows")
    found, everything = (
        copied(tmp_path, "grows", "shelf, id"),
        set(shop.database.execute("SELECT shelf, id FROM grows")),
    )
    assert before <= found < everything
    assert everything - found <= keys_logged(shop, store, "grows")
    assert job(store, tmp_path, ranges).verify("p", repair=False, watcher=Watcher(), stopped=lambda: False).equal
    commit(shop, "DELETE FROM grows")


def test_an_empty_table_that_begins_to_grow_is_left_to_the_log(shop, store, tmp_path):
    commit(shop, "DELETE FROM other", "DELETE FROM grows")
    append(shop, "grows", "'a', i", 35)
    store.grow = lambda: append(shop, "other", "i, 'new'")
    copy(store, shop, tmp_path, 1, "grows", "other")
    everything = set(shop.database.execute("SELECT id FROM other"))
    assert everything
    assert everything == keys_logged(shop, store, "other")
    assert [one.rows_copied for one in store.progress("p")] == [35, 0]
    assert job(store, tmp_path, 1).verify("p", repair=False, watcher=Watcher(), stopped=lambda: False).equal


def test_rows_that_are_deleted_at_the_end_of_a_table_do_not_hold_up_its_copy(shop, store, tmp_path):
    commit(shop, "DELETE FROM other")
    append(shop, "other", "i, 'old'", 35)
    store.grow = lambda: commit(shop, "DELETE FROM other WHERE id > 12")
    copy(store, shop, tmp_path, 1, "other")
    assert copied(tmp_path, "other", "id") == {(number,) for number in range(1, 13)}
    assert job(store, tmp_path, 1).verify("p", repair=False, watcher=Watcher(), stopped=lambda: False).equal


def test_a_key_that_is_too_long_to_ask_with_ends_no_range(shop, store, tmp_path):
    commit(shop, "INSERT INTO long VALUES (replace(hex(zeroblob(100000)), '0', 'z'))")
    copy(store, shop, tmp_path, 1, "long")
    assert copied(tmp_path, "long", "length(name)") == {(200_000,)}
