"""What sinks do when their system fails, refuses, or is somebody else's as well."""

import contextlib
import pkgutil
import sqlite3

import msgspec
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog.sql import SqlCatalog

from databases import PASSWORD, MariaDb, Postgres, free_port
from sink_changes import ChangingSource
from sink_places import PLACES, MariaDbPlace, PostgresPlace, SqlitePlace, rows_of
from tailrace.model.errors import SinkRefusedError, SinkUnavailableError
from tailrace.pipeline.sink.base import Mode
from tailrace.pipeline.sink.delta import DeltaTables
from tailrace.pipeline.sink.delta_lake import DeltaLake
from tailrace.pipeline.sink.lake import LakeSink
from tailrace.pipeline.sink.local_storage import LocalStorage
from tailrace.pipeline.sinks import sink_of


@pytest.fixture
def source():
    return ChangingSource()


@pytest.fixture(params=list(PLACES))
def place(request, tmp_path, servers):
    kind = PLACES[request.param]
    return kind(tmp_path, kind.kinds[0], servers)


@pytest.fixture(params=[SqlitePlace, PostgresPlace, MariaDbPlace], ids=["sqlite", "postgresql", "mysql"])
def database(request, tmp_path, servers):
    return lambda mode: request.param(tmp_path, mode, servers)


@pytest.fixture(params=[Postgres, MariaDb], ids=["postgresql", "mysql"])
def server(request, servers):
    return servers.get(request.param)


def message_of(error):
    """Return all that an error would tell a log, its causes included."""
    told, one = [], error
    while one is not None:
        told.append(f"{one!r} {one}")
        one = one.__cause__ or (None if one.__suppress_context__ else one.__context__)
    return "\n".join(told)


@pytest.mark.parametrize("part", ["user", "password", "database"])
def test_wrong_credentials_are_refused_and_never_shown(server, part):
    wrong = {"user": ("//tailrace:", "//nobody:"), "password": ("p%40ss", "s3cret"), "database": ("/sink", "/nowhere")}
    sink = sink_of(server.url.replace(*wrong[part]), Mode.CURRENT, pipeline="copy")
    with pytest.raises(SinkRefusedError) as refused:
        sink.open([])
    assert "fix the sink's URL" in str(refused.value)
    for secret in (PASSWORD, "p%40ss", "s3cret"):
        assert secret not in message_of(refused.value)
    sink.close()


@pytest.mark.parametrize("scheme", ["postgresql", "mysql"])
def test_a_server_that_is_not_there_is_unavailable(scheme):
    sink = sink_of(f"{scheme}://someone:s3cret@127.0.0.1:{free_port()}/shop", Mode.CURRENT, pipeline="copy")
    with pytest.raises(SinkUnavailableError) as unavailable:
        sink.open([])
    assert "s3cret" not in message_of(unavailable.value)
    sink.close()


KILL = {
    Postgres: (
        "SELECT pid FROM pg_stat_activity WHERE application_name = 'tailrace'",
        "SELECT pg_terminate_backend({})",
    ),
    MariaDb: (
        "SELECT id FROM information_schema.processlist WHERE db = '{part}'",
        "KILL {}",
    ),
}


def kill_connections(place):
    find, kill = KILL[type(place.server)]
    for row in place.execute(find.format(part=place.part)):
        place.execute(kill.format(next(iter(row.values()))))


@pytest.mark.parametrize("kind", [PostgresPlace, MariaDbPlace], ids=["postgresql", "mysql"])
@pytest.mark.parametrize("mode", list(Mode))
def test_a_connection_that_is_lost_is_made_anew_when_the_batch_is_given_again(kind, mode, tmp_path, servers, source):
    place = kind(tmp_path, mode, servers)
    orders = source.table()
    orders.insert(1, "Ann", 1.0)
    sink = place.sink()
    sink.open(source.schemas)
    sink.apply(source.batch())
    kill_connections(place)
    orders.update(1, total=2.0)
    batch = source.batch()
    with pytest.raises(SinkUnavailableError):
        sink.apply(batch)
    sink.apply(batch)
    assert rows_of(sink, orders.schema) == orders.rows
    assert sink.applied() == 1
    sink.close()


@pytest.mark.parametrize("number", [0, 41, 99])
@pytest.mark.parametrize("mode", list(Mode))
def test_a_row_that_is_refused_is_named_and_nothing_of_its_batch_is_kept(database, source, number, mode):
    """SQLite has a rule of the table, PostgreSQL no text with that character, MySQL no number that is not finite."""
    place = database(mode)
    kind = place.url.partition(":")[0]
    good, bad = {"sqlite": ("good", "s3cret" * 9), "postgresql": ("good", "s3cret\x00"), "mysql": (1.0, float("inf"))}[
        kind
    ]
    type_ = pa.float64() if kind == "mysql" else pa.string()
    lines, orders = source.table("lines"), source.table("orders", (("id", pa.int64()), ("note", type_)))
    if kind == "sqlite":
        added = {Mode.CURRENT: "_offset INTEGER, PRIMARY KEY (id)", Mode.APPEND: "_change_type TEXT"}
        added[Mode.HISTORY] = "valid_from_offset INTEGER, PRIMARY KEY (id, valid_from_offset)"
        with sqlite3.connect(place.path) as connection:
            connection.execute(f"CREATE TABLE orders (id INTEGER, note TEXT CHECK (length(note) < 20), {added[mode]})")
        connection.close()
    lines.insert(1, "Ann", 1.0)
    orders.insert(1000, good)
    sink = place.sink()
    sink.open(source.schemas)
    sink.apply(source.batch())
    lines.insert(2, "Bob", 2.0)
    for one in range(100):
        orders.insert(one, bad if one == number else good)
    batch = source.batch()
    for _ in range(2):
        with pytest.raises(SinkRefusedError) as refused:
            sink.apply(batch)
        assert (refused.value.table, refused.value.key) == ("orders", f"[{number}]")
        assert "s3cret" not in message_of(refused.value)
    assert len(place.contents("lines")) == 1
    assert len(place.contents("orders")) == 1
    mended = [one for one in batch.tables if one.schema.table.name == "lines"]
    sink.apply(msgspec.structs.replace(batch, tables=mended))
    assert len(place.contents("lines")) == 2
    sink.close()


def test_a_batch_that_somebody_else_applies_is_applied_once(place, source):
    orders = source.table()
    first, second = place.sink(), place.sink()
    first.open(source.schemas)
    orders.insert(1, "Ann", 1.0)
    opening = source.batch()
    first.apply(opening)
    second.open(source.schemas)
    orders.insert(2, "Bob", 2.0)
    orders.update(1, total=9.0)
    batch = source.batch()
    second.apply(batch)
    try:
        first.apply(batch)
    except SinkUnavailableError:
        first.apply(batch)
    expected = 4 if place.mode is Mode.APPEND else 2
    assert len(place.contents("orders")) == expected
    assert rows_of(second, orders.schema) == orders.rows
    first.close()
    second.close()


def test_a_worker_that_was_held_up_before_a_batch_changes_nothing_after_its_successor(place, source):
    orders = source.table()
    late, next_ = place.sink(), place.sink()
    late.open(source.schemas)
    orders.insert(1, "Ann", 1.0)
    late.apply(source.batch())
    next_.open(source.schemas)
    batches = []
    for number in range(2, 5):
        orders.insert(number, "Bob", 2.0)
        batches.append(source.batch())
        next_.apply(batches[-1])
    with contextlib.suppress(SinkUnavailableError):
        late.apply(batches[0])
    late.apply(batches[0])
    assert len(place.contents("orders")) == 4
    opened = place.sink()
    opened.open(source.schemas)
    assert opened.applied() == next_.applied() == 3
    assert rows_of(opened, orders.schema) == orders.rows
    for sink in (late, next_, opened):
        sink.close()


OVERTAKEN = {"delta": "delta", "delta-spread": "delta_spread", "iceberg": "iceberg"}


@pytest.mark.parametrize(("kind", "mode"), [(kind, mode) for kind in OVERTAKEN for mode in PLACES[kind].kinds])
def test_a_batch_that_two_workers_commit_at_one_moment_is_taken_once(
    kind, mode, tmp_path, servers, source, monkeypatch
):
    place = PLACES[kind](tmp_path, mode, servers)
    orders = source.table()
    orders.insert(1, "Ann", 1.0)
    late, next_ = place.sink(), place.sink()
    late.open(source.schemas)
    late.apply(source.batch())
    next_.open(source.schemas)
    orders.insert(2, "Bob", 2.0)
    orders.insert(3, "Eve", 3.0)
    batch = source.batch()
    name = f"tailrace.pipeline.sink.{OVERTAKEN[kind]}.evolve"
    evolve = pkgutil.resolve_name(name)

    def overtaken(*given):
        """Let the other worker commit the batch when this one has seen that the table lacks it."""
        monkeypatch.setattr(name, evolve)
        next_.apply(batch)
        return evolve(*given)

    monkeypatch.setattr(name, overtaken)
    with pytest.raises(SinkUnavailableError):
        late.apply(batch)
    with contextlib.suppress(SinkUnavailableError):  # it has seen that it is not alone
        late.apply(batch)
    late.apply(batch)
    assert len(place.contents("orders")) == 3
    assert rows_of(late, orders.schema) == orders.rows
    late.close()
    next_.close()


class HeldUp:
    """Tables of a lake that something happens to when they have a batch that is not noted yet."""

    def __init__(self, tables, then):
        self._tables, self._then = tables, then

    def __getattr__(self, name):
        return getattr(self._tables, name)

    def directory(self, schema):
        self._then()
        return self._tables.directory(schema)


@pytest.mark.parametrize("mode", list(Mode))
def test_a_worker_that_was_held_up_in_the_middle_of_a_batch_does_not_move_the_lake_back(tmp_path, source, mode):
    orders = source.table()
    batches = []
    for number in range(1, 5):
        orders.insert(number, "Bob", 2.0)
        batches.append(source.batch())
    next_ = sink_of(f"delta://{tmp_path}/{{table}}", mode, pipeline="copy")

    def take_over():
        next_.open(source.schemas)
        for batch in batches:
            next_.apply(batch)

    tables = HeldUp(DeltaTables(DeltaLake(f"{tmp_path}/{{table}}"), mode, "copy"), take_over)
    late = LakeSink(LocalStorage(tmp_path), tables, "copy")
    late.open(source.schemas)
    with pytest.raises(SinkUnavailableError, match="another worker"):
        late.apply(batches[0])
    late.apply(batches[0])
    assert late.applied() == next_.applied() == 3
    opened = sink_of(f"delta://{tmp_path}/{{table}}", mode, pipeline="copy")
    opened.open(source.schemas)
    assert opened.applied() == 3
    assert rows_of(opened, orders.schema) == orders.rows
    assert len(rows_of(opened, orders.schema)) == 4


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_tables_that_are_ahead_of_what_the_lake_keeps_about_them_are_told(kind, tmp_path, source, servers):
    place = PLACES[kind](tmp_path, Mode.CURRENT, servers)
    orders = source.table()
    sink = place.sink()
    sink.open(source.schemas)
    marker = place.directory / "_tailrace" / "copy.json"
    kept = []
    for number in range(3):
        orders.insert(number, "Ann", 1.0)
        sink.apply(source.batch())
        kept.append(marker.read_bytes())
    marker.write_bytes(kept[0])
    stale = place.sink()
    stale.open(source.schemas)
    orders.insert(9, "Bob", 1.0)
    batch = msgspec.structs.replace(source.batch(), number=1)
    with pytest.raises(SinkRefusedError, match="another worker has written into the table"):
        stale.apply(batch)


@pytest.mark.parametrize("mode", list(Mode))
def test_a_row_that_breaks_a_rule_of_a_delta_table_is_refused_and_not_shown(tmp_path, source, mode):
    orders = source.table()
    orders.insert(1, "Ann", 1.0)
    sink = sink_of(f"delta://{tmp_path}/{{table}}", mode, pipeline="copy")
    sink.open(source.schemas)
    sink.apply(source.batch())
    DeltaTable(tmp_path / "orders").alter.add_constraint({"positive": "total >= 0"})
    orders.insert(4711, "s3cret", -5.25)
    orders.update(1, total=-1.0)
    with pytest.raises(SinkRefusedError, match="table orders: a row breaks a constraint of the Delta table") as refused:
        sink.apply(source.batch())
    assert not any(value in message_of(refused.value) for value in ("4711", "s3cret", "5.25"))


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_types_of_a_table_that_somebody_made_are_left_alone_and_take_what_fits(kind, tmp_path, source, servers):
    place = PLACES[kind](tmp_path, Mode.CURRENT, servers)
    types = pa.schema([("id", pa.int32()), ("customer", pa.string()), ("total", pa.float32())])
    foreign = pa.table([[7], ["theirs"], [0.5]], schema=types)
    if kind == "delta":
        write_deltalake(place.directory / "orders", foreign)
    else:
        place.directory.mkdir()
        catalog = SqlCatalog(
            "tailrace", uri=f"sqlite:///{place.directory}/catalog.db", warehouse=f"file://{place.directory}"
        )
        catalog.create_namespace("shop")
        catalog.create_table(("shop", "orders"), types).append(foreign)
        catalog.close()
    orders = source.table()
    orders.insert(1, "Ann", 1.5)
    orders.insert(2, "Bob", 2.5)
    sink = place.sink()
    sink.open(source.schemas)
    sink.apply(source.batch())
    orders.update(1, total=2.5)
    sink.apply(source.batch())
    contents = sorted((row["id"], row["customer"], row["total"]) for row in place.contents("orders"))
    assert contents == [(1, "Ann", 2.5), (2, "Bob", 2.5), (7, "theirs", 0.5)]
    orders.insert(2**40, "s3cret", 1.0)
    with pytest.raises(SinkRefusedError, match=r"table orders: the .* table does not take these columns") as refused:
        sink.apply(source.batch())
    assert str(2**40) not in message_of(refused.value)
    sink.close()


@pytest.mark.parametrize("mode", list(Mode))
def test_columns_that_differ_in_case_alone_are_refused_by_delta_tables(tmp_path, source, mode):
    orders = source.table("orders", (("id", pa.int64()), ("Note", pa.string())))
    orders.insert(1, "Ann")
    sink = sink_of(f"delta://{tmp_path}/{{table}}", mode, pipeline="copy")
    sink.open(source.schemas)
    sink.apply(source.batch())
    orders.alter(add=[("note", pa.string())])
    orders.insert(2, "Bob", "Bob")
    with pytest.raises(SinkRefusedError, match=r"table orders: .* both columns 'Note' and 'note'"):
        sink.apply(source.batch())
    both = source.table("both", (("id", pa.int64()), ("A", pa.string()), ("a", pa.string())))
    source.tables.remove(orders)
    both.insert(1, "x", "y")
    with pytest.raises(SinkRefusedError, match=r"table both: .* both columns 'A' and 'a'"):
        sink.apply(source.batch())


GONE = {
    "sqlite": lambda place: drop(place.path),
    "postgresql": lambda place: place.execute(f"DROP TABLE {place.part}.orders"),
    "mysql": lambda place: place.execute(f"DROP TABLE {place.part}.orders"),
    "delta": lambda place: (place.directory / "orders").rename(place.directory / "moved"),
}


def drop(path):
    with sqlite3.connect(path) as connection:
        connection.execute("DROP TABLE orders")
    connection.close()


@pytest.mark.parametrize("kind", GONE)
def test_a_table_that_is_gone_is_not_made_anew_in_silence(kind, tmp_path, servers, source):
    place = PLACES[kind](tmp_path, Mode.CURRENT, servers)
    orders = source.table()
    orders.insert(1, "Ann", 1.0)
    sink = place.sink()
    sink.open(source.schemas)
    sink.apply(source.batch())
    sink.close()
    GONE[kind](place)
    with pytest.raises(SinkRefusedError, match="table orders: it is gone"):
        place.sink().open(source.schemas)


def test_a_table_with_another_key_is_refused(database, source):
    place = database(Mode.CURRENT)
    orders = source.table()
    orders.insert(1, "Ann", 1.0)
    sink = place.sink()
    sink.open(source.schemas)
    sink.apply(source.batch())
    orders.key = ("id", "customer")
    orders.insert(2, "Bob", 1.0)
    with pytest.raises(SinkRefusedError, match="has another key"):
        sink.apply(source.batch())
    sink.close()


def test_a_column_with_a_name_that_the_mode_needs_is_refused(tmp_path, servers, source):
    place = SqlitePlace(tmp_path, Mode.HISTORY, servers)
    orders = source.table("orders", (("id", pa.int64()), ("valid_to", pa.string())))
    orders.insert(1, "tomorrow")
    sink = place.sink()
    sink.open(source.schemas)
    with pytest.raises(SinkRefusedError, match="'valid_to' has a name that mode history needs"):
        sink.apply(source.batch())
    sink.close()


def test_a_writer_that_keeps_the_database_makes_it_unavailable(tmp_path, servers, source, monkeypatch):
    monkeypatch.setattr("tailrace.pipeline.sink.sqlite._WAIT_S", 0.01)
    place = SqlitePlace(tmp_path, Mode.CURRENT, servers)
    orders = source.table()
    orders.insert(1, "Ann", 1.0)
    sink = place.sink()
    sink.open(source.schemas)
    other = sqlite3.connect(place.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    batch = source.batch()
    with pytest.raises(SinkUnavailableError):
        sink.apply(batch)
    other.execute("ROLLBACK")
    other.close()
    sink.apply(batch)
    assert rows_of(sink, orders.schema) == orders.rows
    sink.close()


@pytest.mark.parametrize("scheme", ["parquet", "jsonl", "delta", "iceberg"])
def test_a_directory_that_cannot_be_is_refused(scheme, tmp_path, source):
    (tmp_path / "file").write_text("not a directory")
    sink = sink_of(f"{scheme}://{tmp_path}/file/lake", None, pipeline="copy")
    with pytest.raises(SinkRefusedError, match="name a directory that can be written"):
        sink.open(source.schemas)


def test_several_tables_do_not_go_into_one(tmp_path, source):
    source.table("orders")
    source.table("lines")
    for url in (f"delta://{tmp_path}/one", f"sqlite:///{tmp_path}/one.db?table=one"):
        with pytest.raises(Exception, match=r"put \{table\} into"):
            sink_of(url, Mode.CURRENT, pipeline="copy").open(source.schemas)
