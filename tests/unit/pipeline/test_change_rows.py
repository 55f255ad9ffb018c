"""Changes as rows in Spark's change format."""

import pyarrow as pa
import pytest

from tailrace.model.op import Op
from tailrace.model.table import Column, Kind, TableName, TableSchema
from tailrace.pipeline.change_rows import change_rows, change_schema, table_changes, typed_rows
from tailrace.pipeline.typed import MisfitError, row_schema
from tailrace.subscription.bulk import BULK_SCHEMA

ONE = TableSchema(TableName("app", "users"), 1, (Column("id", Kind.I64), Column("name", Kind.STR)), ("id",))
TWO = TableSchema(TableName("app", "users"), 2, (Column("id", Kind.I64), Column("age", Kind.I64)), ("id",))
OTHER = TableSchema(TableName("app", "notes"), 1, (Column("text", Kind.STR),))
SCHEMAS = {1: ONE, 2: TWO, 3: OTHER}


def changes(*rows):
    """Return changes given as op, schema number, key, before and after."""
    columns = [
        list(range(1, len(rows) + 1)),
        [7] * len(rows),
        [1_000_000] * len(rows),
        [0] * len(rows),
        *map(list, zip(*rows, strict=True)),
    ]
    return pa.record_batch([pa.array(c, f.type) for c, f in zip(columns, BULK_SCHEMA, strict=True)], schema=BULK_SCHEMA)


A, B = b'{"id":1,"name":"a"}', b'{"id":1,"name":"b"}'


@pytest.mark.parametrize(
    ("rows", "words", "offsets", "images"),
    [
        ([(Op.INSERT, 1, b"[1]", None, A)], ["insert"], [1], [A]),
        ([(Op.DELETE, 1, b"[1]", A, None)], ["delete"], [1], [A]),
        ([(Op.UPDATE, 1, b"[1]", A, B)], ["update_preimage", "update_postimage"], [1, 1], [A, B]),
        ([(Op.UPDATE, 1, b"[1]", None, B)], ["update_postimage"], [1], [B]),
        ([(Op.DELETE, 1, b"[1]", None, None)], ["delete"], [1], [b'{"id":1}']),
        ([(Op.SCHEMA, 1, b"[]", None, b'{"ddl":"x"}')], [], [], []),
        ([(Op.TRUNCATE, 1, b"[]", None, None)], ["truncate"], [1], [b"{}"]),
        (
            [(Op.UPDATE, 1, b"[1]", A, B), (Op.TRUNCATE, 1, b"[]", None, None), (Op.INSERT, 1, b"[1]", None, A)],
            ["update_preimage", "update_postimage", "truncate", "insert"],
            [1, 1, 2, 3],
            [A, B, b"{}", A],
        ),
        (
            [
                (Op.INSERT, 1, b"[1]", None, A),
                (Op.SCHEMA, 1, b"[]", None, b"{}"),
                (Op.UPDATE, 1, b"[1]", A, B),
                (Op.DELETE, 1, b"[1]", B, None),
            ],
            ["insert", "update_preimage", "update_postimage", "delete"],
            [1, 3, 3, 4],
            [A, A, B, B],
        ),
    ],
)
def test_changes_become_rows_in_their_order(rows, words, offsets, images):
    made = change_rows(changes(*rows), SCHEMAS)
    assert made.words.to_pylist() == words
    assert made.changes.column("offset").to_pylist() == offsets
    assert made.images.to_pylist() == images


def test_rows_of_several_schema_versions_are_read_each_by_its_own():
    batch = changes(
        (Op.INSERT, 1, b"[1]", None, A),
        (Op.INSERT, 2, b"[2]", None, b'{"id":2,"age":30}'),
        (Op.INSERT, 1, b"[3]", None, b'{"id":3,"name":"c"}'),
    )
    columns, _ = typed_rows(change_rows(batch, SCHEMAS), SCHEMAS, row_schema(TWO))
    assert [column.to_pylist() for column in columns] == [[1, 2, 3], [None, 30, None]]


def test_a_column_that_turned_from_bytes_to_text_is_read_by_the_version_that_wrote_it():
    old = TableSchema(TableName("app", "t"), 1, (Column("c", Kind.BYTES),))
    new = TableSchema(TableName("app", "t"), 2, (Column("c", Kind.STR),))
    batch = changes((Op.INSERT, 1, b"[1]", None, b'{"c":"aGk="}'), (Op.INSERT, 2, b"[2]", None, b'{"c":"aGk="}'))
    wanted = pa.schema([("c", pa.string())])
    ((column,), _) = typed_rows(change_rows(batch, {1: old, 2: new}), {1: old, 2: new}, wanted)
    assert column.to_pylist() == ["aGk=", "aGk="]
    with pytest.raises(MisfitError, match="is no binary"):
        typed_rows(change_rows(batch, {1: old, 2: new}), {1: old, 2: new}, pa.schema([("c", pa.binary())]))


def test_a_truncation_has_no_column_and_no_row_number():
    made = table_changes([changes((Op.TRUNCATE, 3, b"[]", None, None), (Op.TRUNCATE, 1, b"[]", None, None))], SCHEMAS)
    notes, users = [one.changes.drop_columns(["_commit_timestamp"]).to_pylist() for one in made]
    assert notes == [{"_change_type": "truncate", "_offset": 1, "_commit_version": 7, "rowid": None, "text": None}]
    assert users == [{"_change_type": "truncate", "_offset": 2, "_commit_version": 7, "id": None, "name": None}]


def test_a_sink_is_given_the_changes_by_table_typed_by_the_newest_version():
    batches = [
        changes((Op.INSERT, 1, b"[1]", None, A), (Op.INSERT, 3, b"[9]", None, b'{"text":"hi"}')),
        changes((Op.UPDATE, 2, b"[1]", b'{"id":1,"age":null}', b'{"id":1,"age":30}')),
    ]
    notes, users = table_changes(batches, SCHEMAS)
    assert (notes.schema, users.schema) == (OTHER, TWO)
    assert users.changes.schema == change_schema(TWO)
    assert users.changes.column("_change_type").to_pylist() == ["insert", "update_preimage", "update_postimage"]
    assert users.changes.column("age").to_pylist() == [None, None, 30]
    assert notes.changes.column("rowid").to_pylist() == [9]
    assert users.changes.column("_commit_timestamp")[0].as_py().isoformat() == "1970-01-01T00:00:01+00:00"
    assert table_changes([], SCHEMAS) == []
