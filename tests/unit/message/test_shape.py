"""A shape makes messages of the changes that a sink wants."""

import json

import msgspec
import pytest

from changing import truncate
from tailrace.message.base import envelope_for
from tailrace.message.shape import Shape, ShapeOptions, message_id
from tailrace.message.targets import target_of
from tailrace.model.chunk import Change
from tailrace.model.errors import ConfigError, SinkRefusedError
from tailrace.model.op import Op
from tailrace.model.table import Column, Kind, TableName, TableSchema
from tailrace.sink_url import parse
from tailrace.testing.target import ScriptedTarget

ORDERS = TableSchema(TableName("shop", "orders"), 3, (Column("id", Kind.I64), Column("qty", Kind.I64)), key=("id",))
LINES = TableSchema(TableName("shop", "lines", "sales"), 1, (Column("no", Kind.STR),), key=("no",))


def change(offset, op=Op.INSERT, key=1, *, before=None, after=None, schema=ORDERS):
    images = [None if row is None else msgspec.json.encode(row) for row in (before, after)]
    return Change(offset, 40 + offset, 1_700_000_000_000_000, 1, op, schema, msgspec.json.encode([key]), *images)


def inserted(offset, qty=1, key=1):
    return change(offset, key=key, after={"id": key, "qty": qty})


def deleted(offset, qty=1, key=1):
    return change(offset, Op.DELETE, key, before={"id": key, "qty": qty})


def shaped(changes, *, tombstones=False, snapshot=False, **options):
    return Shape(ShapeOptions(**options), tombstones=tombstones).shaped(changes, snapshot=snapshot)


def offsets(made):
    return [one.change.offset for one in made]


def test_a_message_has_the_change_in_its_envelope_and_what_tells_repeats():
    (one,) = shaped([inserted(7)])
    (message,) = one.messages
    assert message.id == "shop/7"
    assert dict(message.headers) == {
        "tailrace-id": "shop/7",
        "tailrace-table": "orders",
        "tailrace-op": "insert",
        "tailrace-offset": "7",
        "tailrace-index": "47",
        "tailrace-schema-version": "3",
    }
    assert json.loads(message.value)["after"] == {"id": 1, "qty": 1}
    assert json.loads(message.key) == [1]
    assert one.change == message.change


def test_only_the_tables_that_were_named_are_told():
    line = change(2, key="a", after={"no": "a"}, schema=LINES)
    assert offsets(shaped([inserted(1), line, inserted(3)], tables=("sales.lines",))) == [2]
    assert offsets(shaped([inserted(1), line, inserted(3)])) == [1, 2, 3]


def test_a_schema_change_is_no_message():
    assert shaped([change(1, Op.SCHEMA)]) == []


@pytest.mark.parametrize("filter_", ["qty > 5", "cel: row.qty > 5"])
def test_a_filter_leaves_out_what_does_not_pass_before_and_after(filter_):
    entering = change(3, Op.UPDATE, before={"id": 1, "qty": 2}, after={"id": 1, "qty": 7})
    made = shaped([inserted(1, 3), inserted(2, 9), entering, deleted(4, 1), deleted(5, 6)], filter=filter_)
    assert offsets(made) == [2, 3, 5]


def test_a_filter_that_fails_on_one_change_tells_why_and_goes_on_with_the_others():
    changes = [inserted(1, 2), inserted(2, 0), inserted(3, 5)]
    made = shaped(changes, filter="cel: 10 / row.qty > 1")
    assert [(one.change.offset, len(one.messages)) for one in made] == [(1, 1), (2, 0), (3, 1)]
    assert "division by zero" in made[1].reason


def test_a_projection_changes_the_message_and_leaves_the_change_as_it_came():
    (one,) = shaped([inserted(1, 4)], project=("id", "double = row.qty * 2"))
    assert json.loads(one.messages[0].value)["after"] == {"id": 1, "double": 8}
    assert json.loads(one.change.after) == {"id": 1, "qty": 4}


def test_a_projection_that_fails_on_one_change_tells_why():
    made = shaped([inserted(1, 0), inserted(2, 5)], project=("id", "x = 10 / row.qty"))
    assert [bool(one.reason) for one in made] == [True, False]


def test_a_tombstone_follows_a_deletion_where_target_and_envelope_have_them():
    (one,) = shaped([deleted(5)], tombstones=True)
    assert [message.id for message in one.messages] == ["shop/5", "shop/5/tombstone"]
    assert one.messages[1].value is None
    assert one.messages[1].key == one.messages[0].key
    (row,) = shaped([deleted(5)], tombstones=True, envelope="row")
    assert [message.value for message in row.messages] == [None]
    (none,) = shaped([deleted(5)])
    assert len(none.messages) == 1


def test_rows_of_a_snapshot_are_told_apart_by_table_and_key():
    rows = shaped([inserted(9, key=1), inserted(9, key=2)], snapshot=True)
    assert [one.messages[0].id for one in rows] == ["shop/9/orders/[1]", "shop/9/orders/[2]"]
    assert all(one.messages[0].snapshot for one in rows)


@pytest.mark.parametrize("key", ["a" * 500, "Ærø", "a\u2028b"])
def test_the_id_of_a_long_or_odd_key_is_short_and_plain(key):
    id_ = message_id(change(9, key=key), snapshot=True)
    assert id_.isascii()
    assert len(id_) < 200
    assert id_ != message_id(change(9, key=key + "b"), snapshot=True)


def test_what_does_not_fit_a_table_is_refused_when_the_sink_is_opened():
    shape = Shape(ShapeOptions(filter="nothing = 1"))
    with pytest.raises(ConfigError, match="all of the source unless it names some; they do not fit orders: "):
        shape.check([ORDERS])


def test_a_table_that_the_filter_never_fitted_is_not_said_to_have_changed():
    with pytest.raises(SinkRefusedError, match="as it is, the sink's filter") as raised:
        shaped([inserted(1)], filter="nothing = 1")
    assert "changed" not in str(raised.value)


def test_a_table_that_has_changed_under_the_filter_stops_the_sink():
    shape = Shape(ShapeOptions(filter="qty = 1"))
    shape.check([ORDERS])
    newer = msgspec.structs.replace(ORDERS, version=4, columns=(Column("id", Kind.I64),))
    with pytest.raises(SinkRefusedError, match="it has changed so that"):
        shape.shaped([change(1, after={"id": 1}, schema=newer)])


def test_there_is_no_envelope_of_another_name():
    with pytest.raises(ConfigError, match="envelope"):
        Shape(ShapeOptions(envelope="nothing"))


def test_a_target_that_takes_one_envelope_is_given_that_and_no_other():
    target = target_of(parse("opensearch+http://h/{table}"), "search")
    assert [envelope_for(target, wanted) for wanted in ("", "row")] == ["row", "row"]
    assert [envelope_for(ScriptedTarget(), wanted) for wanted in ("", "debezium")] == ["", "debezium"]
    with pytest.raises(ConfigError, match="supports only the envelope row"):
        envelope_for(target, "debezium")


def test_a_truncation_passes_filter_and_projection_and_has_no_tombstone():
    shape = Shape(ShapeOptions(filter="id = 99", project=("id", "what = op")), tombstones=True)
    (one,) = shape.shaped([change(7, after={"id": 1}), truncate(schema=ORDERS, offset=8)])
    (message,) = one.messages
    assert (message.id, json.loads(message.value)["op"]) == ("shop/8", "truncate")
    assert ("tailrace-op", "truncate") in message.headers
