"""A sink of messages sends the changes of batches, once where its target keeps marks."""

import json
import math
from datetime import UTC, date, datetime
from decimal import Decimal

import msgspec
import pyarrow as pa
import pytest

from changing import ORDERS
from tailrace.message.base import Intake
from tailrace.message.outbox import Outbox
from tailrace.message.shape import ShapeOptions
from tailrace.meta.dead_letter_store import DeadLetterStore
from tailrace.model.errors import SinkRefusedError, SinkUnavailableError
from tailrace.model.op import Op
from tailrace.model.table import Column, Kind, TableName, TableSchema
from tailrace.pipeline.change_rows import change_schema
from tailrace.pipeline.image_rows import IMAGE_SCHEMA
from tailrace.pipeline.sink.base import Batch, TableChanges
from tailrace.pipeline.sink.message import MessageSink, changes_of
from tailrace.testing.clock import FakeClock
from tailrace.testing.target import Fault, ScriptedTarget

TIME = datetime(2025, 11, 16, 8, 0, tzinfo=UTC)
TIME_US = int(TIME.timestamp() * 1_000_000)
ROW = {"id": 1, "customer": "Ann"}
LATER = {"id": 1, "customer": "Bob"}


def images(*rows, schema=ORDERS):
    """Return rows of changes, each a type, an offset and a row, with images."""
    columns = [
        [row[0] for row in rows],
        [row[1] for row in rows],
        [4] * len(rows),
        [TIME] * len(rows),
        [9] * len(rows),
        [msgspec.json.encode([row[2][name] for name in schema.key]) for row in rows],
        [msgspec.json.encode(row[2]) for row in rows],
    ]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, IMAGE_SCHEMA, strict=True)]
    return TableChanges(schema, pa.Table.from_arrays(arrays, schema=IMAGE_SCHEMA), images=True)


def typed(schema, *rows):
    """Return rows of changes with typed columns."""
    made = [
        {"_change_type": kind, "_offset": offset, "_commit_version": 4, "_commit_timestamp": TIME, **row}
        for kind, offset, row in rows
    ]
    return TableChanges(schema, pa.Table.from_pylist(made, schema=change_schema(schema)))


def batch(*tables, number=0, through=100):
    return Batch("p", number, {"shop": through}, tables)


def sink_to(target):
    letters = DeadLetterStore.open("sqlite://", FakeClock())
    sink = MessageSink(Outbox("p", target, ShapeOptions(), letters, FakeClock()))
    sink.open([ORDERS])
    return sink


def offsets(target):
    return [message.change.offset for message in target.arrived]


def test_rows_before_and_after_an_update_are_one_change():
    rows = images(
        ("insert", 5, ROW),
        ("update_preimage", 6, ROW),
        ("update_postimage", 6, LATER),
        ("delete", 7, LATER),
        ("update_postimage", 8, ROW),
        ("update_preimage", 9, ROW),
    )
    made = changes_of(batch(rows))
    told = [(one.offset, one.op, one.before, one.after) for one in made]
    first, later = msgspec.json.encode(ROW), msgspec.json.encode(LATER)
    assert told == [
        (5, Op.INSERT, None, first),
        (6, Op.UPDATE, first, later),
        (7, Op.DELETE, later, None),
        (8, Op.UPDATE, None, first),
        (9, Op.DELETE, first, None),
    ]
    assert {(one.index, one.commit_time_us, one.txid, one.key) for one in made} == {(4, TIME_US, 9, b"[1]")}


def test_changes_of_several_tables_are_in_the_order_of_their_offsets():
    other = TableSchema(TableName("shop", "lines"), 1, (Column("id", Kind.I64),), ("id",))
    one, two = images(("insert", 1, ROW), ("insert", 4, ROW)), images(("insert", 3, {"id": 1}), schema=other)
    assert [one.offset for one in changes_of(batch(one, two))] == [1, 3, 4]


EVERY_KIND = TableSchema(
    TableName("shop", "kinds"),
    1,
    (
        Column("id", Kind.I64),
        Column("flag", Kind.BOOL),
        Column("big", Kind.U64),
        Column("real", Kind.F64),
        Column("money", Kind.DEC, "DECIMAL(10,2)"),
        Column("name", Kind.STR),
        Column("data", Kind.BYTES),
        Column("day", Kind.DATE),
        Column("at", Kind.DATETIME),
        Column("more", Kind.JSON),
    ),
    ("id",),
)


def test_typed_columns_become_the_images_that_the_log_has():
    values = {
        "id": 7,
        "flag": True,
        "big": Decimal(2**64 - 1),
        "real": 1.5,
        "money": Decimal("12.50"),
        "name": 'Ann "Æ"',
        "data": b"\x00\xff",
        "day": date(2025, 11, 16),
        "at": datetime(2025, 11, 16, 8, 0, 0, 250_000),  # noqa: DTZ001
        "more": '{"a":1}',
    }
    (made,) = changes_of(batch(typed(EVERY_KIND, ("insert", 5, values))))
    assert json.loads(made.after) == {
        "id": 7,
        "flag": True,
        "big": 2**64 - 1,
        "real": 1.5,
        "money": "12.50",
        "name": 'Ann "Æ"',
        "data": "AP8=",
        "day": "2025-11-16",
        "at": "2025-11-16 08:00:00.25",
        "more": '{"a":1}',
    }
    assert (made.key, made.index, made.commit_time_us) == (b"[7]", 4, TIME_US)


def test_typed_columns_may_be_null_whole_and_not_finite():
    rows = [
        ("insert", 1, {"id": 1}),
        ("insert", 2, {"id": 2, "real": math.inf, "at": datetime(2025, 1, 1)}),  # noqa: DTZ001
    ]
    first, second = changes_of(batch(typed(EVERY_KIND, *rows)))
    assert set(json.loads(first.after).values()) == {1, None}
    found = json.loads(second.after)
    assert (found["real"], found["at"]) == ({"t": "f64", "v": "Infinity"}, "2025-01-01 00:00:00")


def test_a_table_without_a_key_is_known_by_its_row_number():
    schema = TableSchema(TableName("shop", "notes"), 1, (Column("text", Kind.STR),))
    (made,) = changes_of(batch(typed(schema, ("delete", 3, {"rowid": 12, "text": "a"}))))
    assert (made.key, made.before, made.after) == (b"[12]", b'{"text":"a"}', None)


def test_a_batch_is_sent_once_and_rows_of_a_snapshot_are_marked_as_such():
    target = ScriptedTarget()
    sink = sink_to(target)
    sink.apply(batch(images(("read", 3, ROW)), number=0, through=3))
    sink.apply(batch(images(("read", 3, ROW)), number=0, through=3))
    sink.apply(batch(images(("insert", 4, ROW)), number=1, through=4))
    assert [(one.change.offset, one.snapshot) for one in target.arrived] == [(3, True), (4, False)]
    assert (sink.applied(), sink.progress().offsets) == (1, {"shop": 4})


def test_a_target_that_keeps_marks_has_each_message_once_over_restarts():
    target = ScriptedTarget(Intake.WHOLE, faults=[Fault.AFTER])
    sink = sink_to(target)
    given = batch(images(("insert", 4, ROW)), number=3, through=4)
    with pytest.raises(SinkUnavailableError):
        sink.apply(given)
    again = sink_to(target)
    assert again.applied() == 3
    again.apply(given)
    assert offsets(target) == [4]


def test_a_batch_of_that_number_with_other_changes_is_refused():
    sink = sink_to(ScriptedTarget())
    sink.apply(batch(number=1, through=4))
    with pytest.raises(SinkRefusedError, match="another worker"):
        sink.apply(batch(number=1, through=5))


def test_there_is_nothing_to_verify():
    with pytest.raises(SinkRefusedError, match="verified"):
        sink_to(ScriptedTarget()).rows(ORDERS)


def test_letters_are_sent_again_with_and_without_a_batch():
    target = ScriptedTarget(refuses=lambda message: "no" if message.change.offset == 1 else None)
    letters = DeadLetterStore.open("sqlite://", FakeClock())
    sink = MessageSink(Outbox("p", target, ShapeOptions(), letters, FakeClock()))
    sink.open([ORDERS])
    sink.apply(batch(images(("insert", 1, ROW)), number=0, through=1))
    target.refuses = lambda _: None
    letters.retry("p")
    assert sink.tend() == 1
    assert offsets(target) == [1]
    sink.close()
    assert target.closed


def test_images_and_typed_columns_give_the_same_changes():
    schema = msgspec.structs.replace(ORDERS, columns=ORDERS.columns[:2])
    rows = [("insert", 5, ROW), ("update_preimage", 6, ROW), ("update_postimage", 6, LATER), ("delete", 7, LATER)]
    one = [msgspec.structs.replace(made, txid=0) for made in changes_of(batch(images(*rows, schema=schema)))]
    assert one == changes_of(batch(typed(schema, *rows)))
