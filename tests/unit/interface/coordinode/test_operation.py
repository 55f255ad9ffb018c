"""Facts about the operations of changes: what a consumer reads out of them is what happened."""

import math
from decimal import Decimal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from change_streams import adjacency, edge_property, node, row
from tailrace.delivery.grpc.proto import coordinode_cdc_pb2 as proto
from tailrace.interface.coordinode.operation import Mapper, node_id
from tailrace.interface.coordinode.options import EdgeTable
from tailrace.interface.coordinode.selection import ANY_TYPE, CommitSelection
from tailrace.model.errors import SourceAbilityError
from tailrace.model.image import encode_image, encode_key
from tailrace.model.op import Op
from tailrace.model.table import Column, Identity, Kind, TableName, TableSchema
from tailrace.model.value import Text

INSERT, DELETE, MERGE = 1, 2, 3
USERS = TableSchema(TableName("app", "users"), 1, (Column("id", Kind.I64), Column("name", Kind.STR)), ("id",))
FOLLOWS = TableSchema(
    TableName("app", "follows"),
    1,
    (Column("a", Kind.ANY), Column("b", Kind.ANY), Column("kind", Kind.ANY), Column("since", Kind.I64)),
    ("a", "b"),
)
EDGES = {"follows": EdgeTable("a", "b", type_column="kind")}


def operations(op, schema, key, before=None, after=None, *, edges=None, shard=0):
    """Return the operations of a change and the edge types that it touches."""
    images = [None if image is None else encode_image(image, schema) for image in (before, after)]
    data, types = Mapper(shard, edges or {}).operations(op, schema, encode_key(key, schema), *images)
    return list(proto.ChangeEvent.FromString(data).ops), types


def test_an_insert_puts_the_row_under_its_node_key():
    (op,), types = operations(Op.INSERT, USERS, [7], after={"id": 7, "name": "Ann"}, shard=3)
    assert (op.type, op.partition, op.before, types) == (INSERT, 0, b"", frozenset())
    assert op.key == b"node:\x00\x03:" + (7).to_bytes(8, "big") + b":users"
    assert msgspec.msgpack.decode(op.value) == [["users"], {"id": {"Int": 7}, "name": {"String": "Ann"}}]


def test_an_update_puts_the_row_and_tells_the_one_before():
    before, after = {"id": 7, "name": "Ann"}, {"id": 7, "name": None}
    (op,), _ = operations(Op.UPDATE, USERS, [7], before, after)
    assert (op.type, node(op.key)) == (INSERT, (0, 7, "users", [7]))
    assert row(op.value) == ("users", {"id": ("Int", 7), "name": None})
    assert row(op.before) == ("users", {"id": ("Int", 7), "name": ("String", "Ann")})


def test_a_delete_has_no_value_and_tells_the_row_before():
    (op,), _ = operations(Op.DELETE, USERS, [7], {"id": 7, "name": "Ann"})
    assert (op.type, op.value, node(op.key)) == (DELETE, b"", (0, 7, "users", [7]))
    assert row(op.before) == ("users", {"id": ("Int", 7), "name": ("String", "Ann")})


def test_a_schema_change_tells_the_columns_and_the_ddl():
    data, types = Mapper(0, {}).operations(Op.SCHEMA, USERS, b"[]", None, b'{"ddl":"CREATE TABLE users(id)"}')
    (op,) = proto.ChangeEvent.FromString(data).ops
    assert (op.type, op.partition, op.key, types) == (INSERT, 5, b"schema:table:users:1", frozenset())
    told = msgspec.msgpack.decode(op.value)
    assert (told["ddl"], told["key"], told["columns"][0][:2]) == ("CREATE TABLE users(id)", ["id"], ["id", "i64"])


@pytest.mark.parametrize(
    ("edges", "types"),
    [
        ({}, frozenset()),
        ({"follows": EdgeTable("a", "b", type="KNOWS")}, {"KNOWS"}),
        (EDGES, {ANY_TYPE}),
    ],
    ids=["rows", "edges of a type", "edges of types in a column"],
)
def test_a_truncation_puts_the_schema_with_a_statement_and_touches_the_types_of_its_edges(edges, types):
    data, touched = Mapper(0, edges).operations(Op.TRUNCATE, FOLLOWS, b"[]", None, None)
    (op,) = proto.ChangeEvent.FromString(data).ops
    assert (op.type, op.partition, op.key) == (INSERT, 5, b"schema:table:follows:1")
    assert msgspec.msgpack.decode(op.value)["ddl"] == 'TRUNCATE TABLE "follows"'
    assert touched == types


def test_a_commit_that_may_have_touched_any_edge_is_for_everyone_who_wants_some_type():
    assert CommitSelection(frozenset({"KNOWS"})).touches(frozenset({ANY_TYPE}))
    assert not CommitSelection(frozenset({"KNOWS"})).touches(frozenset({"LIKES"}))


@pytest.mark.parametrize(
    ("kind", "value", "cell"),
    [
        (Kind.ANY, None, None),
        (Kind.BOOL, True, ("Bool", True)),
        (Kind.I64, -5, ("Int", -5)),
        (Kind.U64, 2**64 - 1, ("Int", 2**64 - 1)),
        (Kind.ANY, 2**70, ("Decimal", str(2**70))),
        (Kind.F64, 1.5, ("Float", 1.5)),
        (Kind.F64, math.inf, ("Float", math.inf)),
        (Kind.STR, "ä\0:", ("String", "ä\0:")),
        (Kind.I64, "text in a number", ("String", "text in a number")),
        (Kind.BYTES, b"\x00\xff", ("Bytes", b"\x00\xff")),
        (Kind.ANY, b"\x00\xff", ("Bytes", b"\x00\xff")),
        (Kind.BYTES, "text in bytes", ("String", "text in bytes")),
        (Kind.DEC, Decimal("1.50"), ("Decimal", "1.50")),
        (Kind.DATE, Text(Kind.DATE, "0000-00-00"), ("Date", "0000-00-00")),
        (Kind.TIME, Text(Kind.TIME, "24:00:00"), ("Time", "24:00:00")),
        (Kind.DATETIME, Text(Kind.DATETIME, "infinity"), ("Datetime", "infinity")),
        (Kind.UUID, Text(Kind.UUID, "u"), ("Uuid", "u")),
        (Kind.JSON, Text(Kind.JSON, '{"a": 1}'), ("Json", '{"a": 1}')),
    ],
    ids=str,
)
def test_each_kind_of_value_keeps_its_type(kind, value, cell):
    schema = TableSchema(TableName("app", "t"), 1, (Column("id", Kind.I64), Column("v", kind)), ("id",))
    (op,), _ = operations(Op.INSERT, schema, [1], after={"id": 1, "v": value})
    assert row(op.value) == ("t", {"id": ("Int", 1), "v": cell})


def test_not_a_number_keeps_its_type_too():
    schema = TableSchema(TableName("app", "t"), 1, (Column("v", Kind.F64),))
    (op,), _ = operations(Op.INSERT, schema, [1], after={"v": math.nan})
    (tag, value) = row(op.value)[1]["v"]
    assert tag == "Float"
    assert math.isnan(value)


keys = st.lists(st.integers(-(2**63), 2**64) | st.text() | st.booleans() | st.none(), min_size=1, max_size=3)


@given(keys, st.text(st.characters(exclude_characters="\0", codec="utf-8"), min_size=1), st.integers(0, 65535))
def test_table_and_key_are_read_out_of_a_node_key(key, table, shard):
    names = tuple(f"k{number}" for number in range(len(key)))
    schema = TableSchema(TableName("app", table), 1, tuple(Column(name, Kind.ANY) for name in names), names)
    (op,), _ = operations(Op.INSERT, schema, key, after=dict(zip(names, key, strict=True)), shard=shard)
    found_shard, number, found_table, found_key = node(op.key)
    assert (found_shard, found_table, found_key) == (shard, table, key)
    small = len(key) == 1 and type(key[0]) is int and 0 <= key[0] < 2**63
    assert (number < 2**63) == small


def test_rows_of_two_tables_with_one_key_have_two_node_keys():
    other = msgspec.structs.replace(USERS, table=TableName("app", "other"))
    (one,), _ = operations(Op.INSERT, USERS, [1], after={"id": 1, "name": "x"})
    (two,), _ = operations(Op.INSERT, other, [1], after={"id": 1, "name": "x"})
    assert one.key != two.key
    assert one.key[:16] == two.key[:16]


def edge(a, b, kind="FOLLOWS", since=1):
    return {"a": a, "b": b, "kind": kind, "since": since}


def adjacent(op):
    """Return what a MERGE does: type, direction, id, whether it adds, and the other id."""
    assert (op.type, op.partition, len(op.value)) == (MERGE, 1, 9)
    return (*adjacency(op.key), {1: "add", 2: "remove"}[op.value[0]], int.from_bytes(op.value[1:], "big"))


types = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12) | st.sampled_from(
    ["A:out", "A:in:x", ":", "adj:"]
)
ids = st.integers(0, 2**63 - 1)


@given(types, ids, ids)
def test_edge_keys_decode_back_whatever_the_type_is(type_, source, target):
    row_ = edge(source, target, type_)
    (out, into, known), touched = operations(Op.INSERT, FOLLOWS, [source, target], after=row_, edges=EDGES)
    assert adjacent(out) == (type_, "out", source, "add", target)
    assert adjacent(into) == (type_, "in", target, "add", source)
    assert (known.type, known.partition) == (INSERT, 2)
    assert edge_property(known.key, type_) == (source, target, None)
    assert row(known.value)[1]["since"] == ("Int", 1)
    assert touched == {type_}


def test_a_deleted_edge_is_removed_on_both_sides():
    (out, into, known), touched = operations(Op.DELETE, FOLLOWS, [1, 2], before=edge(1, 2), edges=EDGES)
    assert adjacent(out) == ("FOLLOWS", "out", 1, "remove", 2)
    assert adjacent(into) == ("FOLLOWS", "in", 2, "remove", 1)
    assert (known.type, known.partition, known.value) == (DELETE, 2, b"")
    assert row(known.before)[1]["since"] == ("Int", 1)
    assert touched == {"FOLLOWS"}


def test_an_edge_that_keeps_its_ends_changes_its_properties_alone():
    (known,), touched = operations(Op.UPDATE, FOLLOWS, [1, 2], edge(1, 2), edge(1, 2, since=9), edges=EDGES)
    assert (known.type, edge_property(known.key, "FOLLOWS")) == (INSERT, (1, 2, None))
    assert (row(known.before)[1]["since"], row(known.value)[1]["since"]) == (("Int", 1), ("Int", 9))
    assert touched == {"FOLLOWS"}


def test_an_edge_that_moves_is_removed_and_added():
    ops, touched = operations(Op.UPDATE, FOLLOWS, [1, 2], edge(1, 2), edge(1, 3, "LIKES"), edges=EDGES)
    assert [adjacent(op) for op in ops if op.type == MERGE] == [
        ("FOLLOWS", "out", 1, "remove", 2),
        ("FOLLOWS", "in", 2, "remove", 1),
        ("LIKES", "out", 1, "add", 3),
        ("LIKES", "in", 3, "add", 1),
    ]
    assert [op.type for op in ops] == [MERGE, MERGE, DELETE, MERGE, MERGE, INSERT]
    assert touched == {"FOLLOWS", "LIKES"}


def test_a_row_without_an_end_is_a_node_until_it_has_one():
    unbound = edge(1, None)
    (op,), touched = operations(Op.INSERT, FOLLOWS, [1, None], after=unbound, edges=EDGES)
    assert (op.partition, node(op.key)[2:], touched) == (0, ("follows", [1, None]), frozenset())
    ops, touched = operations(Op.UPDATE, FOLLOWS, [1, None], unbound, edge(1, 2), edges=EDGES)
    assert [(op.type, op.partition) for op in ops] == [(DELETE, 0), (MERGE, 1), (MERGE, 1), (INSERT, 2)]
    assert touched == {"FOLLOWS"}


def test_edges_that_their_ends_do_not_identify_carry_their_key():
    columns = (Column("id", Kind.I64), Column("a", Kind.I64), Column("b", Kind.I64))
    schema = TableSchema(TableName("app", "paid"), 1, columns, ("id",))
    edges = {"paid": EdgeTable("a", "b", type="PAID")}
    *_, known = operations(Op.INSERT, schema, [5], after={"id": 5, "a": 1, "b": 2}, edges=edges)[0]
    assert edge_property(known.key, "PAID") == (1, 2, [5])


def test_the_end_of_an_edge_has_the_id_of_the_row_that_it_names():
    (out, *_), _ = operations(Op.INSERT, FOLLOWS, ["ann", -1], after=edge("ann", -1), edges=EDGES)
    assert adjacency(out.key)[2] == node_id(b'["ann"]') > 2**63
    assert int.from_bytes(out.value[1:], "big") == node_id(b"[-1]") > 2**63


def test_what_was_not_sent_after_an_update_is_taken_from_the_row_before_or_left_out():
    (op,), _ = operations(Op.UPDATE, USERS, [7], {"id": 7, "name": "Ann"}, {"id": 7})
    assert row(op.value) == ("users", {"id": ("Int", 7), "name": ("String", "Ann")})
    for before in (None, {"id": 7}):
        (op,), _ = operations(Op.UPDATE, USERS, [7], before, {"id": 7})
        assert (op.type, row(op.value)) == (INSERT, ("users", {"id": ("Int", 7)}))


KNOWS = {"follows": EdgeTable("a", "b", type="KNOWS")}


@pytest.mark.parametrize(
    ("op", "before", "after", "done"),
    [
        (Op.UPDATE, None, {"a": 1, "b": 2, "since": 5}, [(INSERT, 2)]),
        (Op.UPDATE, {"a": 1, "b": 2}, {"a": 1, "b": 2}, [(INSERT, 2)]),
        (Op.DELETE, None, None, [(MERGE, 1), (MERGE, 1), (DELETE, 2)]),
        (Op.DELETE, {"a": 1, "b": 2}, None, [(MERGE, 1), (MERGE, 1), (DELETE, 2)]),
    ],
    ids=["no row before", "only keys", "key alone", "key as the row before"],
)
def test_an_edge_whose_ends_are_its_key_is_known_without_whole_rows(op, before, after, done):
    ops, types = operations(op, FOLLOWS, [1, 2], before, after, edges=KNOWS)
    assert [(one.type, one.partition) for one in ops] == done
    assert types == {"KNOWS"}


@pytest.mark.parametrize(
    ("op", "before", "after"),
    [
        (Op.INSERT, None, {"a": 1, "b": 2}),
        (Op.UPDATE, {"a": 1, "b": 2}, {"a": 1, "b": 2, "kind": "x"}),
        (Op.UPDATE, None, {"a": 1, "b": 2, "since": 3}),
        (Op.DELETE, None, None),
    ],
)
def test_an_edge_whose_type_was_not_sent_is_an_error_and_never_a_row(op, before, after):
    with pytest.raises(SourceAbilityError, match="did not send kind of a row of the edge table follows"):
        operations(op, FOLLOWS, [1, 2], before, after, edges=EDGES)


def test_an_edge_whose_type_is_null_is_a_row_and_a_column_that_is_not_there_is_none():
    (op,), types = operations(Op.INSERT, FOLLOWS, [1, 2], after={"a": 1, "b": 2, "kind": None}, edges=EDGES)
    assert (op.type, op.partition, types) == (INSERT, 0, frozenset())
    (op,), types = operations(Op.DELETE, USERS, [7], edges={"users": EdgeTable("from", "to", type="KNOWS")})
    assert (op.type, op.partition, types) == (DELETE, 0, frozenset())


@pytest.mark.parametrize("identity", [Identity.WHOLE_ROW, Identity.NONE])
def test_rows_that_no_key_tells_apart_have_the_key_that_there_is(identity):
    schema = TableSchema(TableName("app", "logs"), 1, (Column("text", Kind.STR),), identity=identity)
    key = ["a"] if identity is Identity.WHOLE_ROW else []
    (op,), _ = operations(Op.INSERT, schema, key, after={"text": "a"})
    assert (node(op.key)[2:], row(op.value)) == (("logs", key), ("logs", {"text": ("String", "a")}))
