"""Changes as the rows of a DataFrame, in each layout."""

import pyarrow as pa
import pytest

from tailrace.model.errors import ConfigError
from tailrace.model.op import Op
from tailrace.model.table import Column, Kind, TableName, TableSchema
from tailrace.pipeline.layout import arrow_schema_of, coalesced, rows_of, unpacked
from tailrace.pipeline.source_options import Layout, parse_options
from tailrace.subscription.bulk import BULK_SCHEMA

USERS = TableSchema(TableName("app", "users"), 2, (Column("id", Kind.I64), Column("name", Kind.STR)), ("id",))
ORDERS = TableSchema(TableName("app", "orders", "shop"), 1, (Column("id", Kind.I64),), ("id",))
SCHEMAS = {1: USERS, 4: ORDERS}
A, B = b'{"id":1,"name":"a"}', b'{"id":1,"name":"b"}'


def batch_of(*rows):
    """Return changes given as offset, op, schema number, before and after."""
    columns = [
        [row[0] for row in rows],
        [3] * len(rows),
        [2_000_000] * len(rows),
        [77] * len(rows),
        [row[1] for row in rows],
        [row[2] for row in rows],
        [b"[1]"] * len(rows),
        [row[3] for row in rows],
        [row[4] for row in rows],
    ]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, BULK_SCHEMA, strict=True)]
    return pa.record_batch(arrays, schema=BULK_SCHEMA)


BATCH = batch_of(
    (1, Op.INSERT, 1, None, A),
    (2, Op.UPDATE, 1, A, B),
    (3, Op.SCHEMA, 4, None, b'{"ddl":"x"}'),
    (4, Op.DELETE, 4, b'{"id":1}', None),
)


def options(**given):
    return parse_options({"log_dir": "/log", **given})


def read(batch=BATCH, **given):
    chosen = options(**given)
    schema = arrow_schema_of(chosen, {1: USERS} if chosen.layout is Layout.TYPED else SCHEMAS)
    return rows_of(batch, SCHEMAS, chosen.layout, schema, chosen.string_columns).to_pydict()


def test_the_envelope_has_a_row_for_each_change():
    rows = read(layout="envelope")
    assert rows["_change_type"] == ["insert", "update", "schema", "delete"]
    assert rows["_offset"] == [1, 2, 3, 4]
    assert rows["_table"] == ["users", "users", "shop.orders", "shop.orders"]
    assert rows["_schema_version"] == [2, 2, 1, 1]
    assert (rows["_txid"][0], rows["_key"][0], rows["_commit_version"][0]) == (77, "[1]", 3)
    assert rows["_before"] == [None, A.decode(), None, '{"id":1}']
    assert rows["_after"] == [A.decode(), B.decode(), '{"ddl":"x"}', None]


def test_rows_of_several_tables_are_json():
    rows = read()
    assert rows["_change_type"] == ["insert", "update_preimage", "update_postimage", "delete"]
    assert rows["_table"] == ["users"] * 3 + ["shop.orders"]
    assert rows["_row"] == [A.decode(), A.decode(), B.decode(), '{"id":1}']


def test_rows_of_one_table_are_typed():
    rows = read(BATCH.slice(0, 2), tables="users")
    assert list(rows) == ["_change_type", "_offset", "_commit_version", "_commit_timestamp", "id", "name"]
    assert (rows["id"], rows["name"]) == ([1, 1, 1], ["a", "a", "b"])


def test_only_the_columns_that_are_wanted_are_read():
    rows = read(BATCH.slice(0, 1), tables="users", columns="name", stringColumns="id")
    assert list(rows) == ["_change_type", "_offset", "_commit_version", "_commit_timestamp", "name"]
    assert read(BATCH.slice(0, 1), tables="users", stringColumns="id")["id"] == ["1"]


@pytest.mark.parametrize("name", ["columns", "stringColumns"])
def test_a_column_that_the_table_does_not_have_is_named(name):
    with pytest.raises(ConfigError, match="users has no column 'nmae'"):
        read(tables="users", **{name: "nmae"})


def test_a_schema_of_the_users_own_may_have_fewer_columns_and_others():
    wanted = pa.schema([("name", pa.string()), ("to_come", pa.float64()), ("_offset", pa.int64())])
    rows = rows_of(BATCH.slice(0, 1), SCHEMAS, Layout.TYPED, wanted)
    assert rows.schema == wanted
    assert rows.to_pydict() == {"name": ["a"], "to_come": [None], "_offset": [1]}


def test_small_batches_are_joined_and_keep_their_order():
    many = [(SCHEMAS, batch_of((number, Op.INSERT, 1, None, A))) for number in range(1, 100)]
    (joined,) = list(coalesced(iter([(SCHEMAS, BATCH.slice(0, 0)), *many])))
    assert joined[1].column("offset").to_pylist() == list(range(1, 100))
    assert list(coalesced(iter([]))) == []


def test_large_batches_are_handed_on_as_they_come():
    large = batch_of(*[(number, Op.INSERT, 1, None, A) for number in range(1, 40_001)])
    sizes = [batch.num_rows for _, batch in coalesced(iter([(SCHEMAS, large)] * 2))]
    assert sizes == [40_000, 40_000]


def test_batches_of_text_are_smaller_than_batches_that_are_taken_apart():
    some = [(SCHEMAS, batch_of(*[(number, Op.INSERT, 1, None, A) for number in range(1, 4097)]))] * 4
    sizes = {layout: [batch.num_rows for _, batch in coalesced(iter(some), layout)] for layout in Layout}
    small = [8192, 8192]
    assert sizes == {
        Layout.TYPED: [16_384],
        Layout.JSON: small,
        Layout.ENVELOPE: small,
        Layout.PACKED: [16_384],
        Layout.LATEST: [16_384],
    }


@pytest.mark.parametrize("layout", [Layout.TYPED, Layout.JSON, Layout.ENVELOPE])
def test_columns_that_no_row_lacks_are_declared_so(layout):
    schema = arrow_schema_of(options(layout=layout, tables="users"), {1: USERS})
    always = {field.name for field in schema if not field.nullable}
    assert {"_change_type", "_offset", "_commit_version", "_commit_timestamp"} <= always
    assert always <= {field.name for field in schema if field.name.startswith("_")} - {"_before", "_after", "_row"}


def test_packed_rows_are_those_of_the_layout_json():
    held = read(layout="packed")
    assert (held["_offset"], held["_changes"]) == ([4], [3])
    (rows,) = unpacked(pa.table(held, arrow_schema_of(options(layout="packed"), SCHEMAS)))
    assert rows.to_pydict() == read(layout="json")
    assert read(BATCH.slice(0, 0), layout="packed") == {"_offset": [], "_changes": [], "_rows": []}
    assert read(BATCH.slice(2, 1), layout="packed") == {"_offset": [], "_changes": [], "_rows": []}


def test_the_latest_rows_are_packed_without_what_is_void():
    held = read(layout="latest")
    assert (held["_offset"], held["_changes"]) == ([4], [3])
    (rows,) = unpacked(pa.table(held, arrow_schema_of(options(layout="latest"), SCHEMAS)))
    assert rows["_change_type"].to_pylist() == ["update_postimage", "delete"]
    assert rows["_row"].to_pylist() == [B.decode(), '{"id":1}']
