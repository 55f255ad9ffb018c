"""Cells that the source did not send, in typed changes."""

import logging

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.model.op import Op
from tailrace.model.table import Column, Kind, TableName, TableSchema
from tailrace.pipeline.change_rows import change_rows, table_changes
from tailrace.pipeline.decode import changes_of_json
from tailrace.pipeline.fold import DELETED, fold_current, whole_changes
from tailrace.pipeline.layout import arrow_schema_of, rows_of
from tailrace.pipeline.source_options import Layout, parse_options
from tailrace.pipeline.typed import decode_images, row_schema
from tailrace.pipeline.unchanged import UNCHANGED, UnsentError, filled, lacking, patched, unsent
from tailrace.subscription.bulk import BULK_SCHEMA

pytestmark = pytest.mark.usefixtures("decoder")

COLUMNS = (
    Column("id", Kind.I64, "INTEGER"),
    Column("n", Kind.I64, "INTEGER"),
    Column("s", Kind.STR, "TEXT"),
    Column('odd "s', Kind.BYTES, "BLOB"),
)
ITEMS = TableSchema(TableName("app", "items"), 1, COLUMNS, ("id",))


@pytest.mark.parametrize(
    ("image", "missing"),
    [
        ({"id": 1, "n": 1, "s": "a", 'odd "s': None}, None),
        ({"id": 1, "n": None, "s": None, 'odd "s': None}, None),
        ({"id": 1, "n": None, "s": None}, ['odd "s']),
        ({"id": 1, "s": '"n":null', 'odd "s': None}, ["n"]),
        ({"id": 1, "s": "null", 'odd "s': None}, ["n"]),
        ({"id": 1}, ["n", "s", 'odd "s']),
    ],
)
def test_what_an_image_lacks_is_told_from_null(image, missing):
    wanted = row_schema(ITEMS)
    for before in (0, 3):
        whole = [msgspec.json.encode({"id": 0, "n": 0, "s": "", 'odd "s': ""})] * before
        images, keys = pa.array([*whole, msgspec.json.encode(image)]), pa.array([b"[1]"] * (before + 1))
        told = unsent(images, decode_images(images, keys, ITEMS, wanted), wanted, ITEMS)
        assert told is None if missing is None else msgspec.json.decode(told[-1].as_py()) == missing
        assert told is None or told.null_count == before


def test_an_image_with_spaces_is_read_right():
    wanted = row_schema(ITEMS)
    images = pa.array([b'{"id": 1, "n": null, "s": null}'])
    told = unsent(images, decode_images(images, pa.array([b"[1]"]), ITEMS, wanted), wanted, ITEMS)
    assert msgspec.json.decode(told[0].as_py()) == ['odd "s']


def test_a_column_that_only_a_newer_version_has_is_null_and_not_missing():
    newer = TableSchema(ITEMS.table, 2, (*COLUMNS, Column("more", Kind.I64)), ("id",))
    images = pa.array([b'{"id":1,"n":null,"s":"a","odd \\"s":null}'])
    decoded = decode_images(images, pa.array([b"[1]"]), ITEMS, row_schema(newer))
    assert unsent(images, decoded, row_schema(newer), ITEMS) is None


def batch_of(changes):
    """Return changes given as op, key, before and after."""
    rows = [
        (
            offset,
            offset,
            1_000_000,
            0,
            op,
            1,
            b"[%d]" % key,
            *(image and msgspec.json.encode(image) for image in images),
        )
        for offset, (op, key, *images) in enumerate(changes, start=1)
    ]
    columns = zip(*rows, strict=True)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, BULK_SCHEMA, strict=True)]
    return pa.record_batch(arrays, schema=BULK_SCHEMA)


def test_both_ways_from_the_log_to_typed_changes_tell_what_is_missing():
    whole = {"id": 1, "n": 1, "s": "a", 'odd "s': None}
    batch = batch_of(
        [(Op.INSERT, 1, None, whole), (Op.UPDATE, 1, {"id": 1}, {"id": 1, "n": 2}), (Op.DELETE, 1, None, None)]
    )
    (one,) = table_changes([batch], {1: ITEMS})
    rows = rows_of(batch, {1: ITEMS}, Layout.JSON, columns_of(layout="json"))
    (other,) = changes_of_json(pa.table(rows), {("items", 1): ITEMS})
    assert one.changes == other.changes
    told = [text and msgspec.json.decode(text) for text in one.changes[UNCHANGED].to_pylist()]
    unsent_names = ["n", "s", 'odd "s']
    assert told == [None, unsent_names, unsent_names[1:], unsent_names]


def columns_of(**options):
    return arrow_schema_of(parse_options({"log_dir": "/log", "tables": "items", **options}), {1: ITEMS})


def test_typed_rows_of_spark_tell_what_is_missing_or_are_refused():
    batch = batch_of([(Op.UPDATE, 1, {"id": 1}, {"id": 1, "n": 2}), (Op.DELETE, 1, {"id": 1}, None)])
    rows = rows_of(batch, {1: ITEMS}, Layout.TYPED, columns_of(columns=f"id,n,s,{UNCHANGED}"))
    assert rows.column(UNCHANGED).to_pylist() == ['["n","s"]', '["s"]', '["n","s"]']
    assert rows_of(batch, {1: ITEMS}, Layout.TYPED, columns_of(columns="id,n")).num_rows == 3
    with pytest.raises(UnsentError, match=r"of the row with key \[1\] of table items"):
        rows_of(batch, {1: ITEMS}, Layout.TYPED, columns_of())
    assert rows_of(batch.slice(1), {1: ITEMS}, Layout.TYPED, columns_of()).num_rows == 1


def test_whole_rows_have_no_such_column():
    whole = {"id": 1, "n": None, "s": None, 'odd "s': None}
    (one,) = table_changes([batch_of([(Op.INSERT, 1, None, whole), (Op.DELETE, 1, whole, None)])], {1: ITEMS})
    assert UNCHANGED not in one.changes.column_names
    assert filled(one.changes, ["id"]) is one.changes
    assert change_rows(batch_of([(Op.INSERT, 1, None, whole)]), {1: ITEMS}).images.null_count == 0


def test_a_cell_that_nobody_has_stays_null_with_a_warning(caplog):
    (one,) = table_changes([batch_of([(Op.UPDATE, 1, None, {"id": 1, "n": 2})])], {1: ITEMS})
    with caplog.at_level(logging.WARNING):
        made = whole_changes(one.changes, ["id"], lambda keys, names: pa.table({"id": pa.array([], pa.int64())}))
    assert UNCHANGED not in made.column_names
    assert made["s"].to_pylist() == [None]
    assert [record.changes for record in caplog.records] == [1]


cells = st.fixed_dictionaries({"n": st.integers(0, 3) | st.none(), "s": st.sampled_from(["a", "b"]) | st.none()})
steps = st.lists(
    st.tuples(st.integers(1, 3), st.none() | cells, st.sets(st.sampled_from(["n", "s"]))), min_size=1, max_size=25
)


@settings(max_examples=200, deadline=None)
@given(steps, st.integers(0, 25))
def test_folding_partial_changes_onto_the_rows_of_the_target_gives_the_rows_of_the_source(steps, cut):
    schema = TableSchema(ITEMS.table, 1, COLUMNS[:3], ("id",))
    state, told, target = {}, [], {}
    for number, (key, row, left_out) in enumerate(steps):
        if number == cut:
            target, told = dict(state), []
        before, after = state.get(key), row and {"id": key, **row}
        if before is None and after is None:
            continue
        if before and after:
            sent = {name: cell for name, cell in after.items() if name not in left_out or before[name] != cell}
            told.append((Op.UPDATE, key, {"id": key} if "n" in left_out else None, sent))
        else:
            told.append((Op.INSERT, key, None, after) if after else (Op.DELETE, key, {"id": key}, None))
        state[key] = after
    if not told:
        return
    rows = [row for row in target.values() if row]
    held = pa.Table.from_pylist(rows, row_schema(schema))
    (one,) = table_changes([batch_of(told)], {1: schema})
    made = fold_current(whole_changes(one.changes, ["id"], lambda _, names: held.select(["id", *names])), ["id"])
    assert UNCHANGED not in made.column_names
    for row in made.to_pylist():
        target[row["id"]] = None if row[DELETED] else {name: row[name] for name in ("id", "n", "s")}
    assert {key: row for key, row in target.items() if row} == {key: row for key, row in state.items() if row}


def test_what_is_missing_is_found_by_column():
    table = pa.table({"id": [1, 2, 3], "n": [1, None, None], UNCHANGED: [None, '["n"]', '["n","gone"]']})
    assert {name: mask.tolist() for name, mask in lacking(table).items()} == {"n": [False, True, True]}
    held = pa.table({"id": [3], "n": [7]})
    assert patched(table, ["id"], lambda keys, names: held)["n"].to_pylist() == [1, None, 7]
