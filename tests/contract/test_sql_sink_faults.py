"""What SQL databases do to their sinks: answers that are lost, other workers, locks, servers that are only read."""

import contextlib
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec
import psycopg
import pymysql
import pytest

from databases import DATABASE
from proxy import Proxy
from sink_changes import ChangingSource
from sink_places import MariaDbPlace, PostgresPlace, SqlitePlace, rows_of
from tailrace.model.errors import SinkUnavailableError
from tailrace.pipeline.sink.base import Mode
from tailrace.pipeline.sinks import sink_of

ANY = pytest.mark.parametrize("kind", [SqlitePlace, PostgresPlace, MariaDbPlace], ids=["sqlite", "postgresql", "mysql"])
SERVER = pytest.mark.parametrize("kind", [PostgresPlace, MariaDbPlace], ids=["postgresql", "mysql"])
WAIT_S = 30


@pytest.fixture
def source():
    return ChangingSource()


@contextlib.contextmanager
def opened(sink, source):
    try:
        sink.open(source.schemas)
        yield sink
    finally:
        sink.close()


class Ending(Sequence):
    """The tables of a batch; something happens when they have been gone through for the `at`-th time."""

    def __init__(self, tables, at, then):
        self.tables, self.at, self.then = tables, at, then

    def __len__(self):
        return len(self.tables)

    def __getitem__(self, number):
        if number == len(self.tables):
            self.at -= 1
            if self.at == 0:
                self.then()
        return self.tables[number]


@SERVER
@pytest.mark.parametrize("mode", list(Mode))
def test_a_batch_whose_answer_is_lost_at_any_moment_is_applied_once(tmp_path, servers, source, kind, mode):
    place = kind(tmp_path, mode, servers)
    proxy = Proxy(place.server.port)
    orders = source.table()
    orders.insert(0, "Ann", 1.0)
    url = place.url.replace(f":{place.server.port}/", f":{proxy.port}/")
    taken = set()
    rows = {Mode.CURRENT: 1, Mode.APPEND: 3, Mode.HISTORY: 2}[mode]
    with contextlib.closing(proxy), opened(sink_of(url, mode, pipeline="copy"), source) as sink:
        sink.apply(source.batch())
        for at in range(1, 8):
            orders.insert(at, "Bob", 2.0)
            orders.update(0, total=float(at))
            batch = source.batch()
            try:
                sink.apply(msgspec.structs.replace(batch, tables=Ending(batch.tables, at, proxy.lose_answers)))
            except SinkUnavailableError:
                with opened(place.sink(), source) as other:
                    taken.add(other.applied() == batch.number)
                sink.apply(batch)
            proxy.mend()
            assert sink.applied() == batch.number
            assert rows_of(sink, orders.schema) == orders.rows
            assert len(place.contents("orders")) == 1 + rows * at
    assert taken == {True, False}, "answers were lost both before and after the batch was committed"


@ANY
@pytest.mark.parametrize("mode", list(Mode))
def test_a_worker_that_was_held_up_changes_nothing_where_numbers_were_left_out(tmp_path, servers, source, kind, mode):
    place = kind(tmp_path, mode, servers)
    orders = source.table()
    orders.insert(1, "Ann", 1.0)
    with opened(place.sink(), source) as late, opened(place.sink(), source) as next_:
        late.apply(source.batch())
        orders.update(1, total=2.0)
        batch = source.batch()
        next_.close()
        next_.apply(msgspec.structs.replace(batch, number=7))
        before = place.contents("orders")
        with pytest.raises(SinkUnavailableError, match="another writer has applied batch 7"):
            late.apply(batch)
        late.apply(batch)
        assert place.contents("orders") == before
        assert late.applied() == 7


def test_a_new_database_that_somebody_else_opens_at_the_same_time_is_opened(tmp_path, servers, source):
    place = PostgresPlace(tmp_path, Mode.CURRENT, servers)
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'tailrace' AND wait_event_type = 'Lock'"
    with place.server.connect(DATABASE) as other, ThreadPoolExecutor() as pool:
        other.execute(
            f"CREATE TABLE {place.part}._tailrace_batches (pipeline text, number bigint, offsets text, highest text,"
            " changes bigint, PRIMARY KEY (pipeline, number))"
        )
        sink = place.sink()
        opening = pool.submit(sink.open, [])
        while not opening.done() and place.execute(waiting) == [{"count": 0}]:
            pass
        other.commit()
        opening.result(WAIT_S)
    orders = source.table()
    orders.insert(1, "Ann", 1.0)
    sink.apply(source.batch())
    sink.close()
    assert len(place.contents("orders")) == 1


@SERVER
def test_a_deadlock_ends_and_the_batch_is_applied_once(tmp_path, servers, source, kind):
    place = kind(tmp_path, Mode.CURRENT, servers)
    orders = source.table()
    orders.insert(1, "Ann", 1.0)
    with opened(place.sink(), source) as sink, contextlib.closing(place.server.connect(DATABASE)) as other:
        sink.apply(source.batch())
        orders.update(1, total=2.0)
        batch = source.batch()
        cursor = other.cursor()
        cursor.execute("BEGIN")
        cursor.execute(f"SELECT * FROM {place.part}.orders WHERE id = 1 FOR UPDATE")

        def crossing():
            noted = f"INSERT INTO {place.part}._tailrace_batches (pipeline, number, offsets, highest, changes)"
            with contextlib.suppress(psycopg.errors.DeadlockDetected, pymysql.OperationalError):
                cursor.execute(f"{noted} VALUES ('copy', 1, '{{}}', '{{}}', 0)")
            other.rollback()

        thread = threading.Thread(target=crossing)
        told = Ending(batch.tables, 4, thread.start)  # the batch is noted then, and its rows are next
        with contextlib.suppress(SinkUnavailableError):
            sink.apply(msgspec.structs.replace(batch, tables=told))
        thread.join(WAIT_S)
        sink.apply(batch)
        assert rows_of(sink, orders.schema) == orders.rows
        assert sink.applied() == 1


def test_a_server_that_is_only_read_for_now_is_unavailable(tmp_path, servers, source):
    place = PostgresPlace(tmp_path, Mode.CURRENT, servers)
    orders = source.table()
    orders.insert(1, "Ann", 1.0)
    with opened(place.sink(), source) as sink:
        sink.apply(source.batch())
        orders.update(1, total=2.0)
        batch = source.batch()
        sink.close()
        place.execute(f"ALTER DATABASE {DATABASE} SET default_transaction_read_only = on")
        try:
            with pytest.raises(SinkUnavailableError):
                sink.apply(batch)
        finally:
            place.execute(f"ALTER DATABASE {DATABASE} RESET default_transaction_read_only")
        sink.apply(batch)
        assert rows_of(sink, orders.schema) == orders.rows


def test_a_statement_that_a_server_gives_up_for_its_time_is_tried_again(tmp_path, servers, source):
    place = MariaDbPlace(tmp_path, Mode.CURRENT, servers)
    orders = source.table()
    orders.insert(1, "Ann", 1.0)
    with opened(place.sink(), source) as sink, contextlib.closing(place.server.connect(DATABASE)) as other:
        sink.apply(source.batch())
        orders.update(1, total=2.0)
        batch = source.batch()
        sink.close()
        cursor = other.cursor()
        cursor.execute("BEGIN")
        cursor.execute(f"SELECT * FROM {place.part}.orders WHERE id = 1 FOR UPDATE")
        place.execute("SET GLOBAL max_statement_time = 1")
        try:
            with pytest.raises(SinkUnavailableError, match="1969"):
                sink.apply(batch)
        finally:
            place.execute("SET GLOBAL max_statement_time = 0")
            other.rollback()
        sink.close()
        sink.apply(batch)
        assert rows_of(sink, orders.schema) == orders.rows
