"""What is particular to sinks that are SQL databases: names, types and keys, and tables that somebody else made."""

import random
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime
from decimal import Decimal

import msgspec
import psycopg
import pyarrow as pa
import pytest

from databases import DATABASE, PASSWORD, USER, Postgres
from sink_changes import ChangingSource
from sink_places import MariaDbPlace, PostgresPlace, SqlitePlace, rows_of
from tailrace.model.errors import ConfigError, SinkRefusedError
from tailrace.pipeline.sink.base import Mode
from tailrace.pipeline.sinks import sink_of

PLACES = {"sqlite": SqlitePlace, "postgresql": PostgresPlace, "mysql": MariaDbPlace}


@pytest.fixture
def source():
    return ChangingSource()


@pytest.fixture
def made(tmp_path, servers):
    """Give a function that makes a place, and close what it opened."""
    places = []

    def make(kind, mode=Mode.CURRENT):
        places.append(OpenPlace(PLACES[kind](tmp_path, mode, servers), kind))
        return places[-1]

    yield make
    for place in places:
        place.close()


class OpenPlace:
    """A place, with one sink that is open."""

    def __init__(self, place, kind):
        self.place, self.kind, self.sink = place, kind, None

    def open(self, source):
        self.close()
        self.sink = self.place.sink()
        self.sink.open(source.schemas)
        return self

    def close(self):
        if self.sink is not None:
            self.sink.close()

    def apply(self, *batches):
        for batch in batches:
            self.sink.apply(batch)

    def refusal(self, batch):
        """Return the error with which a batch is refused."""
        with pytest.raises(SinkRefusedError) as refused:
            self.sink.apply(batch)
        return refused.value

    def execute(self, statement):
        """Run a statement past the sink; its tables are named as those of `orders` are."""
        if self.kind != "sqlite":
            return self.place.execute(statement.replace(" orders", f" {self.place.part}.orders"))
        connection = sqlite3.connect(self.place.path, isolation_level=None)
        try:
            return connection.execute(statement).fetchall()
        finally:
            connection.close()

    def contents(self):
        return self.place.contents("orders")

    def check(self, table):
        found = rows_of(self.sink, table.schema)
        assert {key: {name: row[name] for name in table.columns} for key, row in found.items()} == table.rows


@pytest.fixture(params=list(PLACES))
def kind(request):
    return request.param


@pytest.mark.parametrize("mode", list(Mode))
def test_rows_of_many_megabytes_come_back(made, kind, mode, source):
    orders = source.table("orders", (("id", pa.int64()), ("text", pa.string()), ("bytes", pa.binary())))
    place = made(kind, mode).open(source)
    orders.insert(1, "small", b"small")
    orders.insert(2, "x" * (5 << 20), b"small")
    orders.insert(3, "small", b"\x00\xff" * (2 << 20))
    orders.insert(4, "small", b"small")
    place.apply(source.batch())
    place.check(orders)


def test_statements_with_many_long_names_have_room_in_the_packets_of_a_server(made, source):
    names = [f"{number:03}{'n' * 61}" for number in range(200)]
    orders = source.table("orders", (("id", pa.int64()), *((name, pa.string()) for name in names)))
    for number in range(1000):
        orders.insert(number, "x" * 300)
    place = made("mysql")
    place.execute("SET GLOBAL max_allowed_packet = 1048576")
    try:
        place.open(source).apply(source.batch())
        place.check(orders)
    finally:
        place.execute("SET GLOBAL max_allowed_packet = 16777216")


def test_a_row_that_breaks_another_rule_than_that_of_its_key_is_refused_and_changes_no_other(made, kind, source):
    orders = source.table("orders", (("id", pa.int64()), ("seat", pa.int64())))
    place = made(kind).open(source)
    orders.insert(1, 7)
    place.apply(source.batch())
    place.execute("CREATE UNIQUE INDEX one_seat ON orders (seat)")
    orders.insert(2, 7)
    assert place.refusal(source.batch()).key == "[2]"
    assert [(row["id"], row["seat"]) for row in place.contents()] == [(1, 7)]


def test_a_table_without_a_primary_key_is_refused_where_rows_are_replaced(made, kind, source):
    orders = source.table()
    place = made(kind)
    place.execute("CREATE TABLE orders (id BIGINT, customer VARCHAR(20))")
    place.open(source)
    orders.insert(1, "Ann", 1.0)
    assert "has another key, or none" in str(place.refusal(source.batch()))


@pytest.mark.parametrize("several_batches", [False, True])
def test_texts_that_the_key_of_a_table_takes_for_one_are_refused(made, source, several_batches):
    orders = source.table("orders", (("k", pa.string()), ("v", pa.int64())), ("k",))
    place = made("mysql")
    place.execute("CREATE TABLE orders (k VARCHAR(20) COLLATE utf8mb4_general_ci PRIMARY KEY, v BIGINT)")
    place.open(source)
    orders.insert("a", 1)
    if several_batches:
        place.apply(source.batch())
    orders.insert("A", 2)
    assert place.refusal(source.batch()).key == '["A"]'
    assert [row["k"] for row in place.contents()] == (["a"] if several_batches else [])


def test_versions_of_texts_that_a_table_takes_for_one_are_told_apart(made, source):
    orders = source.table("orders", (("k", pa.string()), ("v", pa.int64())), ("k",))
    place = made("mysql", Mode.HISTORY)
    place.execute(
        "CREATE TABLE orders (k VARCHAR(20) COLLATE utf8mb4_general_ci, v BIGINT, valid_from_offset BIGINT,"
        " PRIMARY KEY (k, valid_from_offset))"
    )
    place.open(source)
    orders.insert("a", 1)
    place.apply(source.batch())
    orders.insert("A", 2)
    orders.insert("a ", 3)
    place.apply(source.batch())
    place.check(orders)
    orders.delete("A")
    place.apply(source.batch())
    place.check(orders)


def test_a_table_whose_engine_has_no_transactions_is_refused(made, source):
    source.table()
    place = made("mysql")
    place.execute("CREATE TABLE orders (id BIGINT PRIMARY KEY) ENGINE=MyISAM")
    with pytest.raises(SinkRefusedError, match="engine MyISAM, which has no transactions"):
        place.open(source)


def test_tables_whose_names_differ_in_their_letters_case_do_not_go_into_one(made, kind, source):
    tables = [source.table("Orders"), source.table("orders")]
    for number, table in enumerate(tables):
        table.insert(1, f"customer {number}", 1.0)
    place = made(kind)
    if kind == "sqlite":
        with pytest.raises(ConfigError, match="several tables would go into one"):
            place.open(source)
    else:
        place.open(source).apply(source.batch())
        for table in tables:
            place.check(table)


@pytest.mark.parametrize("name", ["_tailrace_batches", "_tailrace_arrivals"])
def test_a_table_with_a_name_that_the_sink_needs_is_refused(made, kind, source, name):
    source.table(name)
    with pytest.raises(ConfigError, match=f"{name} is a table of the sink itself"):
        made(kind).open(source)


LONG = {"sqlite": "ü" * 200, "postgresql": "ü" * 32, "mysql": "ü" * 65}


def test_a_table_whose_name_is_too_long_is_refused_and_no_other_is_made(made, kind, source):
    orders = source.table(LONG[kind])
    orders.insert(1, "Ann", 1.0)
    place = made(kind)
    if kind == "sqlite":
        place.open(source).apply(source.batch())
        place.open(source).check(orders)
    else:
        with pytest.raises(SinkRefusedError, match="names have at most"):
            place.open(source)


def test_a_column_whose_name_is_too_long_is_refused(made, kind, source):
    orders = source.table("orders", (("id", pa.int64()), (LONG[kind], pa.int64())))
    orders.insert(1, 2)
    place = made(kind).open(source)
    if kind == "sqlite":
        place.apply(source.batch())
        place.open(source).check(orders)
    else:
        assert LONG[kind] in str(place.refusal(source.batch()))


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("name", ["s", "t", "excluded"])
def test_names_that_statements_use_are_names_like_others(made, kind, source, mode, name):
    table = source.table(name, (("t", pa.int64()), ("s", pa.string()), ("excluded", pa.string())), ("t",))
    table.insert(1, "a", "b")
    table.insert(2, "a", "b")
    place = made(kind, mode).open(source)
    place.apply(source.batch())
    table.update(1, s="c")
    table.delete(2)
    place.apply(source.batch())
    place.check(table)


def test_text_is_right_in_a_database_of_another_encoding(servers, source):
    server = servers.get(Postgres)
    server.shared(DATABASE).execute(
        "CREATE DATABASE latin ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
    )
    orders = source.table("Grüße", (("Schlüssel", pa.string()), ("v", pa.string())), ("Schlüssel",))
    orders.insert("Köln", "Grüße")
    sink = sink_of(server.url.replace(f"/{DATABASE}", "/latin"), Mode.CURRENT, pipeline="copy")
    try:
        sink.open(source.schemas)
        sink.apply(source.batch())
        assert rows_of(sink, orders.schema) == orders.rows
        orders.insert("Łódź", "🌊")
        with pytest.raises(SinkRefusedError) as refused:
            sink.apply(source.batch())
        assert refused.value.key == '["Łódź"]'
    finally:
        sink.close()
    place = f"host=127.0.0.1 port={server.port} dbname=latin client_encoding=UTF8 user={USER}"
    with psycopg.connect(place, password=PASSWORD) as other:
        assert other.execute('SELECT v FROM "Grüße"').fetchall() == [("Grüße",)]


WIDER = {
    "int to decimal": (pa.int64(), 5, pa.decimal128(21, 2), Decimal("5.00")),
    "int to text": (pa.int64(), 5, pa.string(), "5"),
    "int to float": (pa.int64(), 5, pa.float64(), 5.0),
    "int to bytes": (pa.int64(), 5, pa.binary(), b"5"),
    "bool to int": (pa.bool_(), True, pa.int64(), 1),
    "decimal to decimal": (pa.decimal128(10, 2), Decimal("5.50"), pa.decimal128(20, 4), Decimal("5.5000")),
    "small decimal": (pa.decimal128(20, 10), Decimal("1E-10"), pa.decimal128(24, 12), Decimal("1.00E-10")),
    "decimal to text": (pa.decimal128(10, 2), Decimal("5.50"), pa.string(), "5.50"),
    "date to time": (
        pa.date32(),
        date(2026, 1, 2),
        pa.timestamp("us"),
        datetime(2026, 1, 2, tzinfo=UTC).replace(tzinfo=None),
    ),
    "float to text": (pa.float64(), 0.30000000000000004, pa.string(), "0.30000000000000004"),
    "text to bytes": (pa.string(), "żółć", pa.binary(), "żółć".encode()),
}


@pytest.mark.parametrize("mode", [Mode.CURRENT, Mode.HISTORY])
@pytest.mark.parametrize("case", list(WIDER))
def test_a_key_of_any_type_that_is_widened_still_finds_its_rows(made, kind, source, mode, case):
    old, value, new, same = WIDER[case]
    orders = source.table("orders", (("k", old), ("n", pa.int64()), ("v", old)), ("k", "n"))
    for number in range(3):
        orders.insert(value, number, value)
    place = made(kind, mode).open(source)
    place.apply(source.batch())
    orders.alter(retype={"k": (new, lambda _: same), "v": (new, lambda _: same)})
    orders.rows = {orders.key_of(row): row for row in orders.rows.values()}
    orders.update((same, 1), n=3)
    orders.delete((same, 2))
    orders.insert(same, 9, same)
    place.apply(source.batch())
    place.check(orders)


@pytest.mark.parametrize("name", ["orders", "batches"])
def test_an_sqlite_table_that_is_made_anew_keeps_its_views_indexes_and_triggers(made, source, name):
    orders = source.table(name, (("id", pa.int64()), ("v", pa.int64())))
    orders.insert(1, 2)
    place = made("sqlite").open(source)
    place.apply(source.batch())
    place.execute(f"CREATE INDEX by_v ON {name} (v)")
    place.execute(f"CREATE VIEW doubled AS SELECT id, v || v FROM {name}")
    place.execute(f"CREATE TRIGGER look AFTER INSERT ON {name} BEGIN SELECT 1; END")
    orders.alter(retype={"v": (pa.string(), str)})
    orders.insert(2, "x")
    place.apply(source.batch())
    place.check(orders)
    assert place.execute("SELECT * FROM doubled") == [(1, "22"), (2, "xx")]
    kept = place.execute("SELECT name FROM sqlite_schema WHERE name IN ('by_v', 'look') ORDER BY name")
    assert kept == [("by_v",), ("look",)]


@pytest.mark.parametrize("mode", list(Mode))
def test_a_number_that_is_none_comes_back_or_is_refused(made, kind, source, mode):
    orders = source.table("orders", (("id", pa.int64()), ("f", pa.float64())))
    orders.insert(1, 1.0)
    orders.insert(2, float("nan"))
    place = made(kind, mode).open(source)
    if kind == "postgresql":
        place.apply(source.batch())
        assert str(rows_of(place.sink, orders.schema)[(2,)]["f"]) == "nan"
    else:
        assert place.refusal(source.batch()).key == "[2]"


def test_floats_come_back_digit_by_digit(made, kind, source):
    draw = random.Random(7)
    told = [0.1, 1 / 3, 1e15, 1e16, 1e22, 1e23, 2.0**53 + 2, 5e-324, 1.7976931348623157e308, -1e-300]
    told += [] if kind == "mysql" else [float("inf"), float("-inf")]
    told += [draw.uniform(-1, 1) * 10 ** draw.randint(-30, 30) for _ in range(1000)]
    orders = source.table("orders", (("id", pa.int64()), ("f", pa.float64())))
    for number, value in enumerate(told):
        orders.insert(number, value)
    place = made(kind).open(source)
    place.apply(source.batch())
    place.check(orders)


@pytest.mark.parametrize("type_", [pa.date32(), pa.timestamp("us"), pa.timestamp("us", tz="UTC")], ids=str)
def test_a_date_that_no_text_tells_is_refused(made, kind, source, type_):
    orders = source.table("orders", (("id", pa.int64()), ("at", type_)))
    for number in range(3):
        orders.insert(number, None)
    batch = source.batch()
    (table,) = batch.tables
    days = pa.array([0, 72_329_012, 1])  # the second is in the year 200 000
    unit, whole = (1, pa.int32()) if type_ == pa.date32() else (86_400_000_000, pa.int64())
    far = pa.array([day.as_py() * unit for day in days], whole).cast(type_)
    changes = table.changes.set_column(table.changes.schema.get_field_index("at"), "at", far)
    place = made(kind).open(source)
    refusal = place.refusal(msgspec.structs.replace(batch, tables=[msgspec.structs.replace(table, changes=changes)]))
    assert refusal.key == "[1]"


ODD_TEXTS = ["\\.", "a\n\\.\nb", "\n\\.\n", "\r\n", "\r", "\\N", '"', '""', ",", "\\", "\x01", "\ufeffmark", "\u2028"]
ODD_TEXTS += ["'", "''", "\\'", "\x1a", "--", "/*", ";", "%", "%s", "NULL", "{}"]


@pytest.mark.parametrize("mode", list(Mode))
def test_texts_that_mean_something_to_a_server_come_back(made, kind, source, mode):
    orders = source.table("orders", (("k", pa.string()), ("v", pa.string())), ("k",))
    texts = [*ODD_TEXTS, *([] if kind == "postgresql" else ["nul \0", "nul \0 byte", "\0"])]
    for text in texts:
        orders.insert(text, text)
    place = made(kind, mode).open(source)
    place.apply(source.batch())
    place.check(orders)
    for text in texts[::2]:
        orders.delete(text)
    place.apply(source.batch())
    place.check(orders)


def moment(*parts):
    return datetime(*parts, tzinfo=UTC)


KEYS = {
    "unsigned": (pa.decimal128(20, 0), [Decimal(2**64 - 1), Decimal(0), Decimal(5)]),
    "decimal": (pa.decimal128(20, 10), [Decimal("1E-10"), Decimal("0E-10"), Decimal("5.5000000000")]),
    "text": (pa.string(), ["", "a", "żółć 🌊"]),
    "bytes": (pa.binary(), [b"", b"\x00\xff", b"a"]),
    "bool": (pa.bool_(), [True, False]),
    "date": (pa.date32(), [date(1, 1, 1), date(9999, 12, 31)]),
    "time": (
        pa.timestamp("us"),
        [moment(1, 1, 1).replace(tzinfo=None), moment(2026, 1, 2, 3, 4, 5, 6).replace(tzinfo=None)],
    ),
    "zoned": (pa.timestamp("us", tz="UTC"), [moment(2026, 1, 2, 3, 4, 5, 6), moment(1969, 12, 31)]),
    "float": (pa.float64(), [0.1, 0.0, 1e300]),
}


@pytest.mark.parametrize("mode", [Mode.CURRENT, Mode.HISTORY])
@pytest.mark.parametrize("type_", list(KEYS))
def test_changes_of_any_key_that_come_again_count_once(made, kind, source, mode, type_):
    orders = source.table("orders", (("k", KEYS[type_][0]), ("v", pa.int64())), ("k",))
    for value in KEYS[type_][1]:
        orders.insert(value, 1)
    first = source.batch()
    for value in KEYS[type_][1]:
        orders.update(value, v=2)
    second = source.batch()
    place = made(kind, mode).open(source)
    place.apply(first, second)
    place.apply(*(msgspec.structs.replace(one, number=2 + n) for n, one in enumerate((first, second, first))))
    place.check(orders)
    assert len(place.contents()) == len(orders.versions if mode is Mode.HISTORY else orders.rows)


def test_keys_of_a_type_that_only_the_table_has_are_found_again(made, source):
    key = "5f0c8bd0-2b6c-4b8a-9d4e-0a8f0e5b7a11"
    orders = source.table("orders", (("k", pa.string()), ("v", pa.string())), ("k",))
    place = made("postgresql", Mode.HISTORY)
    place.execute("CREATE TABLE orders (k uuid, v jsonb, valid_from_offset bigint, PRIMARY KEY (k, valid_from_offset))")
    place.open(source)
    orders.insert(key, '{"a": 1}')
    first = source.batch()
    orders.update(key, v='{"a": 2}')
    place.apply(first, source.batch(), msgspec.structs.replace(first, number=2))
    place.check(orders)
    assert len(place.contents()) == 2


def test_rows_that_another_thread_leaves_half_read_do_no_harm(made, kind, source):
    orders = source.table()
    orders.insert(1, "Ann", 1.0)
    first = source.batch()
    orders.update(1, total=2.0)
    place = made(kind)
    with ThreadPoolExecutor(1) as own:
        own.submit(place.open, source).result()
        own.submit(place.apply, first).result()
        rows = own.submit(place.sink.rows, orders.schema).result()
        assert own.submit(next, rows).result().num_rows == 1
        del rows
        own.submit(place.apply, source.batch()).result()
        own.submit(place.check, orders).result()
        own.submit(place.close).result()
        place.sink = None


def test_keys_that_change_places_in_one_batch_keep_their_rows(made, kind, source):
    orders = source.table()
    orders.insert(1, "Ann", 1.0)
    orders.insert(2, "Bob", 2.0)
    place = made(kind).open(source)
    place.apply(source.batch())
    orders.update(1, id=3)
    orders.update(2, id=1)
    orders.update(3, id=2)
    place.apply(source.batch())
    place.check(orders)


def test_a_key_that_is_too_long_for_an_index_is_refused_by_name(made, kind, source):
    draw = random.Random(1)
    long = "".join(chr(draw.randint(0x4E00, 0x9000)) for _ in range(3000))
    orders = source.table("orders", (("k", pa.string()), ("v", pa.int64())), ("k",))
    orders.insert("a", 1)
    orders.insert(long, 1)
    place = made(kind).open(source)
    if kind == "sqlite":
        place.apply(source.batch())
        place.check(orders)
    else:
        assert place.refusal(source.batch()).key.startswith(f'["{long[:50]}')
        assert place.contents() == []


@pytest.mark.parametrize("mode", [Mode.CURRENT, Mode.HISTORY])
def test_a_key_has_room_in_the_index_when_another_of_its_columns_becomes_text(made, kind, source, mode):
    orders = source.table("orders", (("k", pa.string()), ("n", pa.int64())), ("k", "n"))
    orders.insert("a", 1)
    place = made(kind, mode).open(source)
    place.apply(source.batch())
    orders.alter(retype={"n": (pa.string(), str)})
    orders.rows = {orders.key_of(row): row for row in orders.rows.values()}
    orders.delete(("a", "1"))
    orders.insert("a", "many")
    place.apply(source.batch())
    place.check(orders)


def test_a_key_of_many_columns_has_room_in_the_index(made, kind, source):
    numbers = [f"n{number}" for number in range(8)]
    columns = (("k", pa.string()), *((name, pa.int64()) for name in numbers))
    orders = source.table("orders", columns, ("k", *numbers))
    orders.insert("a", *range(8))
    place = made(kind, Mode.HISTORY).open(source)
    place.apply(source.batch())
    place.check(orders)
