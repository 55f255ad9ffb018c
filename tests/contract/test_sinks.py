"""One contract, all sinks, all of their modes."""

import json
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal

import msgspec
import pyarrow as pa
import pytest
from msgspec import structs

from kind_samples import SAMPLES
from sink_changes import EPOCH, ChangingSource
from sink_places import CONTRACTED, SpreadDeltaObjectsPlace, SpreadDeltaPlace, rows_of
from tailrace.model.errors import SinkRefusedError
from tailrace.model.table import Column, Identity, Kind
from tailrace.model.value import Text
from tailrace.pipeline.json_column import typed_column
from tailrace.pipeline.sink.base import Batch, Mode, TableChanges
from tailrace.pipeline.sink.spread import SpreadBatch
from tailrace.pipeline.sink_thread import SinkThread

LAKE_CASES = {"delta-current", "delta-spread-current", "iceberg-current", "parquet-append", "jsonl-append"}
ALL = [(kind, mode) for kind, place in CONTRACTED.items() for mode in place.kinds]


def cases(*modes):
    """Return all sinks in these modes, as parameters."""
    return [pytest.param((kind, mode), id=f"{kind}-{mode}") for kind, mode in ALL if mode in modes]


@pytest.fixture(params=cases(*Mode))
def place(request, tmp_path, servers):
    kind, mode = request.param
    return CONTRACTED[kind](tmp_path, mode, servers)


@pytest.fixture
def source():
    return ChangingSource()


def opened(place, source):
    sink = place.sink()
    sink.open(source.schemas)
    return sink


def check(place, sink, table):
    """Compare a table of the source with what the sink has, by its own word and by another's."""
    rows = rows_of(sink, table.schema)
    assert {key: {name: row[name] for name in table.columns} for key, row in rows.items()} == table.rows
    contents = place.contents(table.name)
    if place.mode is Mode.APPEND:
        assert len(contents) == table.told
    if place.mode is Mode.CURRENT:
        assert len(contents) == len(table.rows)
    if place.mode is Mode.HISTORY:
        kept, told = (
            [(one["valid_from_offset"], one["valid_to_offset"]) for one in ones] for ones in (contents, table.versions)
        )
        assert sorted(kept, key=str) == sorted(told, key=str)


def three_batches(source):
    """Return batches with everything in them: several changes of a key, deletes, keys that change and come again."""
    orders = source.table("orders")
    lines = source.table("lines", key=("id", "customer"))
    for number in range(20):
        orders.insert(number, f"customer {number}", number / 2)
        lines.insert(number, "Ann", None)
    orders.update(3, total=9.0)
    source.commit()
    orders.delete(4)
    yield source.batch()
    orders.update(5, id=105)
    orders.update(6, customer=None)
    orders.update(6, customer="Six")
    source.commit()
    orders.insert(4, "again", -1.0)
    orders.delete(7)
    source.commit()
    orders.update(105, total=5.5)
    yield source.batch()
    orders.delete(105)
    source.commit()
    orders.insert(105, "new", None)
    orders.update(8, id=7)
    for number in range(20):
        lines.update((number, "Ann"), customer="Bob")
    yield source.batch()


def test_each_batch_leaves_the_sink_equal_to_the_source(place, source):
    sink = place.sink()
    for number, batch in enumerate(three_batches(source)):
        if number == 0:
            sink.open(source.schemas)
            assert sink.applied() is None
        sink.apply(batch)
        assert sink.applied() == number
        for table in source.tables:
            check(place, sink, table)
    sink.close()
    sink.close()


def partial_batches(source):
    """Return batches of updates that send only what changed, before and after other changes of the same rows."""
    orders = source.table("orders")
    lines = source.table("lines", key=("id", "customer"))
    orders.partial = lines.partial = True
    for number in range(6):
        orders.insert(number, f"customer {number}", number / 2)
        lines.insert(number, "Ann", 1.5)
    yield source.batch()
    orders.update(0, total=7.0)
    orders.update(1, customer=None)
    source.commit()
    orders.update(1, total=8.0)
    orders.update(2)
    source.commit()
    orders.update(2, total=None)
    orders.delete(3)
    lines.update((2, "Ann"))
    yield source.batch()
    orders.insert(3, "again", 3.5)
    source.commit()
    orders.update(3, total=4.5)
    orders.insert(9, "new", None)
    orders.update(9, customer="newer")
    source.commit()
    orders.delete(0)
    orders.update(2, customer="two")
    lines.delete((1, "Ann"))
    yield source.batch()


def test_an_update_leaves_the_columns_alone_that_it_does_not_send(place, source):
    sink = place.sink()
    for number, batch in enumerate(partial_batches(source)):
        if number == 0:
            sink.open(source.schemas)
        sink.apply(batch)
        for table in source.tables:
            check(place, sink, table)
            if place.mode is Mode.HISTORY:
                names = [name for name in table.columns if name not in table.key]
                kept = {one["valid_from_offset"]: [one[name] for name in names] for one in place.contents(table.name)}
                assert kept == {
                    one["valid_from_offset"]: [one["row"][name] for name in names] for one in table.versions
                }
    sink.close()


def test_a_sink_that_is_opened_again_goes_on_where_it_was(place, source):
    for number, batch in enumerate(three_batches(source)):
        sink = opened(place, source)
        assert sink.applied() == (number - 1 if number else None)
        sink.apply(batch)
        sink.close()
        sink = opened(place, source)
        assert sink.progress().offsets == batch.offsets
        for table in source.tables:
            check(place, sink, table)
        sink.close()


def unordered(place, source):
    """Return what each table has, in no order: tables of databases have none."""
    return {table.name: sorted(map(str, place.contents(table.name))) for table in source.tables}


def test_a_batch_that_is_given_again_changes_nothing(place, source):
    sink = place.sink()
    given = []
    for batch in three_batches(source):
        given.append(batch)
        if len(given) == 1:
            sink.open(source.schemas)
        sink.apply(batch)
        before = unordered(place, source)
        for one in given:
            sink.apply(one)
        sink.close()
        sink = opened(place, source)
        for one in given:
            sink.apply(one)
        assert unordered(place, source) == before
        for table in source.tables:
            check(place, sink, table)
    sink.close()


class FailingTables(Sequence):
    """The tables of a batch, of which one cannot be had: something fails when it is asked for the `at`-th time."""

    def __init__(self, tables, at):
        self.tables, self.at, self.asked = tables, at, 0

    def __len__(self):
        return len(self.tables)

    def __getitem__(self, number):
        self.asked += 1
        if self.asked == self.at and number < len(self.tables):
            raise TornError
        return self.tables[number]


class TornError(Exception):
    pass


@pytest.mark.parametrize(
    ("at", "opened_again"),
    [(2, True), (5, False), (11, True)],
)
def test_a_batch_that_fails_in_the_middle_is_applied_wholly_when_it_is_given_again(place, source, at, opened_again):
    sink = place.sink()
    for number, batch in enumerate(three_batches(source)):
        if number == 0:
            sink.open(source.schemas)
        try:
            sink.apply(msgspec.structs.replace(batch, tables=FailingTables(batch.tables, at)))
        except TornError:
            assert sink.applied() == (number - 1 if number else None)
        if opened_again:
            sink.close()
            sink = opened(place, source)
        sink.apply(batch)
        for table in source.tables:
            check(place, sink, table)
    sink.close()


def test_a_number_that_the_sink_has_with_other_changes_is_refused(place, source):
    sink = place.sink()
    batches = list(three_batches(source))
    sink.open(source.schemas)
    for batch in batches:
        sink.apply(batch)
    with pytest.raises(SinkRefusedError, match="another worker writes into it"):
        sink.apply(msgspec.structs.replace(batches[1], offsets={"shop": 10_000}))
    sink.close()


def apply_all(place, source, *batches):
    sink = opened(place, source)
    for batch in batches:
        sink.apply(batch)
    return sink


def test_columns_that_are_added_dropped_and_widened_are_followed(place, source):
    orders = source.table("orders", (("id", pa.int64()), ("count", pa.int64()), ("note", pa.string())))
    orders.insert(1, 7, "first")
    orders.insert(2, 8, "second")
    sink = apply_all(place, source, source.batch())
    orders.alter(add=[("price", pa.decimal128(10, 2)), ("at", pa.timestamp("us"))])
    for row in orders.rows.values():
        row |= {"price": None, "at": None}
    orders.update(1, price=Decimal("12.50"), at=moment(2026, 2, 3, 4, 5, 6, 789))
    sink.apply(source.batch())
    check(place, sink, orders)
    orders.alter(drop=["note"])
    orders.insert(3, 9, Decimal("1.00"), None)
    orders.update(2, count=80)
    sink.apply(source.batch())
    sink.close()
    sink = opened(place, source)
    kept = {row["id"]: row.get("note") for row in place.contents("orders")}
    assert kept[3] is None
    for row in orders.rows.values():
        row.pop("note", None)
    check(place, sink, orders)
    orders.alter(retype={"count": (pa.string(), str), "price": (pa.decimal128(20, 4), lambda value: value)})
    orders.insert(4, "007", Decimal("12345678901234.5678"), None)
    sink.apply(source.batch())
    check(place, sink, orders)
    orders.update(4, count="many")
    orders.delete(1)
    sink.apply(source.batch())
    check(place, sink, orders)
    sink.close()


def test_a_key_that_is_widened_still_finds_its_rows(place, source):
    orders = source.table("orders", (("id", pa.int64()), ("note", pa.string())))
    orders.insert(1, "one")
    orders.insert(2, "two")
    sink = apply_all(place, source, source.batch())
    orders.alter(retype={"id": (pa.string(), str)})
    orders.rows = {(row["id"],): row for row in orders.rows.values()}
    for version in orders.versions:
        version["key"] = (str(version["key"][0]),)
    orders.update("1", note="changed")
    orders.delete("2")
    orders.insert("x", "new")
    sink.apply(source.batch())
    check(place, sink, orders)
    sink.close()


def moment(year, month=1, day=1, *rest):
    """Return a time without a zone, as a database has it."""
    return datetime(year, month, day, *rest, tzinfo=UTC).replace(tzinfo=None)


VALUES = {
    "i": (pa.int64(), [-(2**63), 2**63 - 1, 0]),
    "u": (pa.decimal128(20, 0), [Decimal(2**64 - 1), Decimal(0), Decimal(5)]),
    "d": (
        pa.decimal128(38, 10),
        [Decimal("1234567890123456789012345678.0123456789"), Decimal("-0.0000000001"), Decimal(7)],
    ),
    "f": (pa.float64(), [1e308, 5e-324, -0.1]),
    "s": (pa.string(), ["", 'quote " comma , \\ back\nline\ttab', "żółć 🌊 NULL \\N %s"]),
    "b": (pa.binary(), [b"", b"\x00\xff\\x00", bytes(range(256))]),
    "t": (pa.bool_(), [True, False, None]),
    "day": (pa.date32(), [date(1, 1, 1), date(9999, 12, 31), date(2026, 2, 28)]),
    "at": (pa.timestamp("us"), [moment(1970), moment(9999, 12, 31, 23, 59, 59, 999999), moment(2026, 1, 2)]),
    "zoned": (pa.timestamp("us", tz="UTC"), [datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC), None, EPOCH]),
    "empty": (pa.string(), [None, None, None]),
}


def test_values_of_all_types_come_back_as_they_were(place, source):
    columns = (("id", pa.int64()), *((name, type_) for name, (type_, _) in VALUES.items()))
    orders = source.table("orders", columns)
    for number in range(3):
        orders.insert(number, *(values[number] for _, values in VALUES.values()))
    orders.insert(3, *([None] * len(VALUES)))
    sink = apply_all(place, source, source.batch())
    check(place, sink, orders)
    for number in range(3):
        orders.update(number, id=number + 10)
    sink.apply(source.batch())
    check(place, sink, orders)
    (first, *_) = sink.rows(orders.schema)
    assert {field.name: field.type for field in first.schema} == dict(columns)
    sink.close()


LISTS = {
    "i": (pa.list_(pa.int64()), [[1, None, -(2**63)], []]),
    "f": (pa.list_(pa.float64()), [[0.1, 1e308], [None]]),
    "d": (pa.list_(pa.decimal128(20, 2)), [[Decimal("1.50"), None], []]),
    "s": (pa.list_(pa.string()), [["", 'quote " comma , \\ {back}\nline', "NULL", None], ["żółć"]]),
    "b": (pa.list_(pa.binary()), [[b"\x00\xff\\", b""], []]),
    "t": (pa.list_(pa.bool_()), [[True, False, None], []]),
    "day": (pa.list_(pa.date32()), [[date(2026, 2, 28)], [None]]),
    "at": (pa.list_(pa.timestamp("us")), [[moment(2026, 1, 2, 3, 4, 5, 6)], []]),
    "zoned": (pa.list_(pa.timestamp("us", tz="UTC")), [[datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)], []]),
    "grid": (pa.list_(pa.list_(pa.int64())), [[[1, 2], [3, None]], []]),
}


def as_lists(row):
    """Return a row whose lists a sink may have as the text of a JSON array."""
    texts = {name: json.loads(row[name]) for name in LISTS if isinstance(row[name], str)}
    return {name: typed_column([value], LISTS[name][0]).to_pylist()[0] for name, value in texts.items()}


def test_lists_come_back_as_they_were_or_as_the_text_of_a_json_array(place, source):
    columns = (("id", pa.int64()), *((name, type_) for name, (type_, _) in LISTS.items()))
    orders = source.table("orders", columns)
    for number in range(2):
        orders.insert(number, *(values[number] for _, values in LISTS.values()))
    orders.insert(2, *([None] * len(LISTS)))
    sink = apply_all(place, source, source.batch())
    orders.update(1, id=11)
    orders.partial = place.mode is not Mode.APPEND
    orders.update(0, i=[7])
    orders.delete(2)
    sink.apply(source.batch())
    sink.close()
    sink.open(source.schemas)
    orders.update(0, f=None)
    sink.apply(source.batch())
    rows = rows_of(sink, orders.schema)
    assert {key: {name: {**row, **as_lists(row)}[name] for name in orders.columns} for key, row in rows.items()} == (
        orders.rows
    )
    sink.close()


def test_a_list_that_becomes_another_type_is_the_text_of_a_json_array(place, source):
    orders = source.table("orders", (("id", pa.int64()), ("n", pa.list_(pa.int64())), ("w", pa.list_(pa.int64()))))
    orders.insert(1, [1, None], [1])
    orders.insert(2, None, None)
    sink = apply_all(place, source, source.batch())
    orders.alter(retype={"n": (pa.string(), lambda value: json.dumps(value, separators=(",", ":")))})
    orders.alter(retype={"w": (pa.list_(pa.float64()), lambda value: [float(one) for one in value])})
    orders.insert(3, "text", [1.5])
    sink.apply(source.batch())
    rows = rows_of(sink, orders.schema)
    assert {key[0]: row["n"] for key, row in rows.items()} == {1: "[1,null]", 2: None, 3: "text"}
    lists = {1: [1.0], 2: None, 3: [1.5]}
    texts = {key[0]: json.loads(row["w"]) if isinstance(row["w"], str) else row["w"] for key, row in rows.items()}
    assert texts == lists
    sink.close()


TEXTS = {sample.name: sample for sample in SAMPLES if isinstance(sample.value, Text)}
NATIVE = {
    "interval interval": "interval",
    "bit bit(10)": "bit(10)",
    "bit bit varying": "bit varying",
    "network inet": "inet",
    "network cidr": "cidr",
    "network macaddr": "macaddr",
    "range int4range": "int4range",
}
"""Samples for whose types PostgreSQL has a type of its own in which the text stays what it is."""


def test_values_of_all_kinds_of_text_come_back_to_the_letter(place, source):
    orders = source.table("orders", (("id", pa.int64()), *((name, pa.string()) for name in TEXTS)))
    orders.facts = {name: structs.replace(sample.column, name=name) for name, sample in TEXTS.items()}
    orders.insert(1, *(sample.value.text for sample in TEXTS.values()))
    orders.insert(2, *([None] * len(TEXTS)))
    sink = apply_all(place, source, source.batch())
    orders.update(1, id=11)
    sink.apply(source.batch())
    check(place, sink, orders)
    sink.close()
    sink.open(source.schemas)
    orders.update(11, **{"range int4range": "empty"})
    sink.apply(source.batch())
    check(place, sink, orders)
    sink.close()


@pytest.mark.parametrize("place", [("postgresql", Mode.CURRENT)], indirect=True)
def test_postgresql_has_types_of_its_own_until_the_source_has_another(place, source):
    def types():
        found = place.execute(
            "SELECT attname, format_type(atttypid, atttypmod) AS type FROM pg_attribute"
            f" WHERE attrelid = '{place.part}.orders'::regclass AND attnum > 0"
        )
        return {one["attname"]: one["type"] for one in found}

    orders = source.table("orders", (("id", pa.int64()), *((name, pa.string()) for name in TEXTS)))
    orders.facts = {name: structs.replace(sample.column, name=name) for name, sample in TEXTS.items()}
    orders.insert(1, *(sample.value.text for sample in TEXTS.values()))
    sink = apply_all(place, source, source.batch())
    assert {name: type_ for name, type_ in types().items() if type_ != "text"} == {
        "id": "bigint",
        "_offset": "bigint",
        **NATIVE,
    }
    orders.alter()
    orders.facts["interval interval"] = Column("interval interval", Kind.STR, "text")
    orders.update(1, **{"interval interval": "no interval"})
    sink.apply(source.batch())
    check(place, sink, orders)
    assert (types()["interval interval"], types()["network inet"]) == ("text", "inet")
    sink.close()
    place.execute(f'ALTER TABLE {place.part}.orders ALTER "interval interval" TYPE interval USING NULL')
    place.execute(f"""COMMENT ON COLUMN {place.part}.orders."interval interval" IS 'mine'""")
    sink.open(source.schemas)
    orders.update(1, **{"interval interval": "1 day"})
    sink.apply(source.batch())
    assert types()["interval interval"] == "interval"
    sink.close()


def test_keys_of_any_type_find_their_rows(place, source):
    for name in ("u", "s", "b", "day", "at"):
        type_, values = VALUES[name]
        table = source.table(f"by_{name}", (("k", type_), ("n", pa.int64()), ("v", pa.string())), ("k", "n"))
        for number, value in enumerate(values):
            table.insert(value, number, "before")
    sink = apply_all(place, source, source.batch())
    for table in source.tables:
        first, second, third = list(table.rows)
        table.update(first, v="after")
        table.delete(second)
        table.update(third, n=22)
    sink.apply(source.batch())
    for table in source.tables:
        check(place, sink, table)
    sink.close()


LARGE_KEYS = {
    "unsigned": (pa.decimal128(20, 0), [Decimal(2**64 - number) for number in range(1, 7)]),
    "decimal": (pa.decimal128(18, 2), [Decimal(f"9999999999999999.0{number}") for number in range(6)]),
    "time": (pa.timestamp("us"), [moment(2026, 1, 1, 0, 0, 0, number) for number in range(6)]),
    "text": (pa.string(), [f"{'ä' * 100}{number}" for number in range(6)]),
    "bytes": (pa.binary(), [b"\xff" * 40 + bytes([number]) for number in range(6)]),
}


@pytest.mark.parametrize("kind", LARGE_KEYS)
def test_keys_that_statistics_tell_only_roughly_find_their_rows(place, source, kind):
    type_, values = LARGE_KEYS[kind]
    orders = source.table("orders", (("k", type_), ("v", pa.string())), ("k",))
    for value in values:
        orders.insert(value, "first")
    sink = apply_all(place, source, source.batch())
    orders.update(values[2], v="changed")
    sink.apply(source.batch())
    check(place, sink, orders)
    orders.delete(values[4])
    sink.apply(source.batch())
    orders.insert(values[4], "again")
    sink.apply(source.batch())
    check(place, sink, orders)
    sink.close()


def test_texts_that_only_look_alike_are_different_keys(place, source):
    orders = source.table("orders", (("k", pa.string()), ("v", pa.int64())), ("k",))
    for number, key in enumerate(["a", "A", "a ", "ä", "Ä", "", " ", "ａ", "ss", "ß"]):
        orders.insert(key, number)
    sink = apply_all(place, source, source.batch())
    check(place, sink, orders)
    orders.delete("A")
    orders.delete("a ")
    orders.update("ä", v=99)
    sink.apply(source.batch())
    check(place, sink, orders)
    sink.close()


def test_names_may_be_anything(place, source):
    names = ['say "so"', "back`tick", "per%cent %s", "a.b", "select", "Gruß", "Two Words", "it's"]
    orders = source.table(
        "Order Lines", (("The Key", pa.int64()), *((name, pa.string()) for name in names)), ("The Key",)
    )
    orders.insert(1, *names)
    orders.insert(2, *names)
    sink = apply_all(place, source, source.batch())
    orders.update(1, **{"a.b": "changed", "per%cent %s": "%d"})
    orders.delete(2)
    sink.apply(source.batch())
    assert rows_of(sink, orders.schema) == orders.rows
    sink.close()


def test_a_truncation_empties_the_table_whatever_comes_before_and_after_it(place, source):
    if isinstance(place, SpreadDeltaPlace | SpreadDeltaObjectsPlace) and place.mode is not Mode.APPEND:
        pytest.skip("tasks that meet a truncation leave the batch to the driver")
    orders, lines = source.table("orders"), source.table("lines", key=("id", "customer"))
    sink = opened(place, source)
    for number in range(20):
        orders.insert(number, "Ann", 1.0)
        lines.insert(number, "Ann", 1.0)
    sink.apply(source.batch())
    orders.insert(50, "Bob", 1.0)
    source.commit()
    orders.update(3, total=2.0)
    orders.delete(4)
    source.commit()
    orders.insert(60, "Cleo", 1.0)
    orders.truncate()
    orders.insert(3, "Dan", 3.0)
    lines.delete((1, "Ann"))
    last = source.batch()
    for _ in range(2):  # given again, it changes nothing
        sink.apply(last)
        check(place, sink, orders)
        check(place, sink, lines)
    orders.insert(4, "Eve", 1.0)
    source.commit()
    orders.truncate()
    source.commit()
    orders.insert(4, "Eve", 2.0)
    source.commit()
    orders.truncate()
    lines.truncate()
    sink.apply(source.batch())
    check(place, sink, orders)
    check(place, sink, lines)
    orders.insert(1, "Flo", 1.0)
    sink.apply(source.batch())
    check(place, sink, orders)
    sink.close()


def test_a_truncation_of_a_table_that_the_sink_does_not_have_yet_makes_it(place, source):
    if isinstance(place, SpreadDeltaPlace | SpreadDeltaObjectsPlace) and place.mode is not Mode.APPEND:
        pytest.skip("tasks that meet a truncation leave the batch to the driver")
    orders = source.table("orders")
    sink = opened(place, source)
    orders.truncate()
    sink.apply(source.batch())
    check(place, sink, orders)
    sink.close()


def test_rows_of_a_table_that_is_made_anew_come_in_the_place_of_those_that_the_sink_has(place, source):
    orders = source.table()
    for number in range(4):
        orders.insert(number, "old", 0.0)
    sink = apply_all(place, source, source.batch())
    orders.version += 1
    for number in range(2, 6):
        orders.insert(number, "rebuilt", 1.0)
    sink.apply(source.batch())
    check(place, sink, orders)
    orders.insert(9, "behind all others", 1.0)
    sink.apply(source.batch())
    check(place, sink, orders)
    sink.close()


def test_rows_of_a_first_snapshot_are_taken_as_they_are(place, source):
    orders = source.table()
    sink = opened(place, source)
    read = []
    for number, part in enumerate([range(3), range(3, 6)]):
        rows = [{"id": key, "customer": "read", "total": 1.0} for key in part]
        at = {"_change_type": "read", "_offset": 5, "_commit_version": 1, "_commit_timestamp": EPOCH}
        one = orders.table_changes([at | row for row in rows])
        sink.apply(Batch("copy", number, {"shop": 5}, [msgspec.structs.replace(one, fresh=True)]))
        read += rows
    assert [row for _, row in sorted(rows_of(sink, orders.schema).items())] == read
    assert len(place.contents("orders")) == len(read)
    sink.close()


@pytest.mark.parametrize("name", ["Größe 漢字", "50% #1?", "a=b&c", "*[x]", "back\\slash", "..", 'it\'s "so"'])
@pytest.mark.parametrize("place", [case for case in cases(*Mode) if case.id in LAKE_CASES], indirect=True)
def test_names_of_tables_may_be_anything_in_a_lake(place, source, name):
    orders = source.table(name)
    orders.insert(1, "Ann", 1.0)
    orders.insert(2, "Bob", 1.0)
    sink = apply_all(place, source, source.batch())
    orders.update(1, total=2.0)
    sink.apply(source.batch())
    assert rows_of(sink, orders.schema) == orders.rows
    sink.close()


def test_a_table_without_a_primary_key_has_its_row_number(place, source):
    orders = source.table("orders", (("rowid", pa.int64()), ("note", pa.string())), ("rowid",))
    orders.insert(1, "same")
    orders.insert(2, "same")
    sink = apply_all(place, source, source.batch())
    orders.delete(1)
    orders.update(2, note="other")
    sink.apply(source.batch())
    check(place, sink, orders)
    sink.close()


@pytest.mark.parametrize("place", cases(Mode.CURRENT, Mode.HISTORY), indirect=True)
def test_changes_that_come_late_or_twice_in_other_batches_count_once(place, source):
    orders = source.table()
    told = []
    for step in range(4):
        if step == 0:
            orders.insert(1, "Ann", 0.0)
            orders.insert(2, "Bob", 0.0)
        elif step == 1:
            orders.update(1, total=1.0)
            orders.delete(2)
        elif step == 2:
            orders.insert(2, "Bob again", 2.0)
            orders.update(1, id=3)
        else:
            orders.update(3, total=3.0)
        told.append(source.batch())
    first, second, third, fourth = (batch.tables[0].changes for batch in told)
    runs = [
        first,
        pa.concat_tables([second, first]),
        pa.concat_tables([third, first, second]),
        pa.concat_tables([second, fourth, third]),
    ]
    sink = opened(place, source)
    for number, run in enumerate(runs):
        tables = [TableChanges(orders.schema, run)]
        sink.apply(Batch("copy", number, told[number].offsets, tables))
    check(place, sink, orders)
    sink.close()


@pytest.mark.parametrize("place", cases(Mode.CURRENT), indirect=True)
def test_a_row_of_a_snapshot_does_not_undo_a_later_change(place, source):
    orders = source.table()
    orders.insert(1, "Ann", 1.0)
    orders.read()
    snapshot = orders.table_changes(orders.changes[-1:])
    orders.changes = orders.changes[:1]
    source.commit()
    orders.update(1, total=2.0)
    sink = apply_all(place, source, source.batch())
    sink.apply(Batch("copy", 1, {"shop": source.offset}, [snapshot]))
    check(place, sink, orders)
    sink.close()


def test_a_batch_without_rows_makes_the_table(place, source):
    orders = source.table()
    sink = opened(place, source)
    sink.apply(Batch("copy", 0, {"shop": 0}, [orders.table_changes([])]))
    assert place.contents("orders") == []
    assert rows_of(sink, orders.schema) == {}
    assert sink.applied() == 0
    sink.close()


def test_a_batch_without_tables_is_noted(place, source):
    sink = opened(place, source)
    sink.apply(source.batch())
    sink.close()
    sink = opened(place, source)
    assert sink.applied() == 0
    sink.close()


def test_pipelines_do_not_mix_their_numbers(place, source):
    orders = source.table()
    orders.insert(1, "Ann", 1.0)
    sink = apply_all(place, source, source.batch())
    other = ChangingSource("other", "another")
    lines = other.table("lines")
    lines.insert(2, "Bob", 2.0)
    second = place.sink("another")
    second.open(other.schemas)
    assert second.applied() is None
    second.apply(other.batch())
    check(place, sink, orders)
    assert rows_of(second, lines.schema) == lines.rows
    sink.close()
    second.close()


def test_a_row_without_a_key_is_refused_by_name_unless_it_is_appended(place, source):
    orders = source.table("orders", (("a", pa.int64()), ("b", pa.string())), ("a", "b"))
    orders.insert(1, "x")
    orders.insert(2, None)
    sink = opened(place, source)
    batch = source.batch()
    if place.mode is Mode.APPEND:
        sink.apply(batch)
        assert len(place.contents("orders")) == 2
    else:
        with pytest.raises(SinkRefusedError) as refused:
            sink.apply(batch)
        assert (refused.value.table, refused.value.key) == ("orders", "[2,null]")
    sink.close()


@pytest.mark.parametrize("identity", [Identity.WHOLE_ROW, Identity.NONE])
def test_a_table_whose_rows_are_not_told_apart_can_be_appended_alone(place, source, identity):
    orders = source.table("orders")
    orders.insert(1, "Ann", 1.0)
    orders.insert(2, "Bob", 1.0)
    batch = source.batch()
    alike = msgspec.structs.replace(orders.schema, key=(), identity=identity)
    batch = msgspec.structs.replace(batch, tables=[TableChanges(alike, one.changes) for one in batch.tables])
    sink = place.sink()
    sink.open([alike])
    if place.mode is Mode.APPEND:
        sink.apply(batch)
        assert len(place.contents("orders")) == 2
        with pytest.raises(SinkRefusedError, match="no key that identifies its rows"):
            list(sink.rows(alike))
    else:
        with pytest.raises(SinkRefusedError, match="needs a key that identifies rows"):
            sink.apply(batch)
    sink.close()


LAKE_MODULES = {"delta": "delta", "iceberg": "iceberg_table"}
LAKES = [case for case in cases(*Mode) if case.id.startswith(tuple(LAKE_MODULES))]


@pytest.mark.parametrize("place", LAKES, indirect=True)
def test_large_files_of_a_lake_are_left_alone_however_many_there_are(place, source, monkeypatch):
    module = f"tailrace.pipeline.sink.{LAKE_MODULES[place.url.partition(':')[0]]}"
    monkeypatch.setattr(f"{module}.FILES_MAX", 3)
    monkeypatch.setattr(f"{module}._SMALL_BYTES", 0)
    orders = source.table()
    sink = opened(place, source)
    for number in range(6):
        orders.insert(number, "Ann", float(number))
        sink.apply(source.batch())
    assert place.files("orders") == 6
    check(place, sink, orders)
    sink.close()


@pytest.mark.parametrize("place", LAKES, indirect=True)
def test_small_files_of_a_lake_are_put_together(place, source, monkeypatch):
    monkeypatch.setattr(f"tailrace.pipeline.sink.{LAKE_MODULES[place.url.partition(':')[0]]}.FILES_MAX", 3)
    orders = source.table()
    sink = opened(place, source)
    files = []
    for number in range(8):
        orders.insert(number, "Ann", float(number))
        sink.apply(source.batch())
        files.append(place.files("orders"))
    assert max(files) <= 4
    check(place, sink, orders)
    assert len(place.contents("orders")) == 8
    sink.close()


ABILITIES = {
    "delta": {"ahead", "forget", "lay_out", "newest", "spread", "upkeep"},
    "delta-spread": {"ahead", "forget", "lay_out", "newest", "spread", "upkeep"},
    "iceberg": {"ahead", "forget", "newest", "upkeep"},
    "catalog": {"forget", "use_spark"},
    "parquet": set(),
    "jsonl": set(),
}
"""What sinks declare beside what all can; those of SQL databases, which are not named, declare `forget`."""


@pytest.mark.parametrize("kind", list(CONTRACTED))
def test_a_sink_can_do_what_it_declares_and_is_asked_for_nothing_else(kind, tmp_path, servers):
    source = ChangingSource()
    orders = source.table("orders")
    orders.insert(1, "Ann", 1.0)
    place = CONTRACTED[kind](tmp_path, CONTRACTED[kind].kinds[0], servers)
    declared = place.sink().traits
    assert {name for name in declared.__struct_fields__ if getattr(declared, name) is not None} == ABILITIES.get(
        kind.removesuffix("-s3"), {"forget"}
    )
    thread = SinkThread(place.sink, outage_s_max=0, proceed=lambda: None)
    thread.open(source.schemas)
    thread.apply(source.batch())
    assert thread.newest(source.schemas) == thread.applied() == 0
    assert thread.takes_spread(source.schemas) == (declared.spread is not None)
    thread.tend()
    if declared.spread is None:
        with pytest.raises(SinkRefusedError, match="tasks cannot write"):
            thread.apply_spread(SpreadBatch("copy", 1, "source", None, 1))
    thread.close()
    if declared.forget is not None:
        sink = opened(place, source)
        sink.traits.forget(source.schemas)
        sink.open(source.schemas)
        assert sink.applied() is not None, "what is there is not forgotten"
        check(place, sink, orders)
        sink.close()
