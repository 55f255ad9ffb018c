"""Folding gives what a naive replay of the same changes gives."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sink_changes import CHANGE, ChangingSource
from tailrace.pipeline.fold import fold_current, fold_history, last_known

KEYS = st.integers(0, 4)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("insert"), KEYS, st.floats(allow_nan=False)),
        st.tuples(st.just("update"), KEYS, st.floats(allow_nan=False)),
        st.tuples(st.just("move"), KEYS, KEYS),
        st.tuples(st.just("delete"), KEYS, st.none()),
        st.tuples(st.just("commit"), st.none(), st.none()),
        st.tuples(st.just("batch"), st.none(), st.none()),
    ),
    max_size=40,
)
COLUMNS = (("id", pa.int64()), ("part", pa.string()), ("total", pa.float64()))


def tell(steps):
    """Return the table and the batches of changes that these steps make; steps that cannot be are left out."""
    source = ChangingSource()
    table = source.table("orders", COLUMNS, ("id", "part"))
    batches = []

    def end_batch():
        source.commit()
        batches.append(table.table_changes(table.changes).changes)
        table.changes = []

    for step, one, other in steps:
        key = (one, str(one))
        if step == "insert" and key not in table.rows:
            table.insert(one, str(one), other)
        elif step == "update" and key in table.rows:
            table.update(key, total=other)
        elif step == "move" and key in table.rows and (other, str(other)) not in table.rows:
            table.update(key, id=other, part=str(other))
        elif step == "delete" and key in table.rows:
            table.delete(key)
        elif step == "batch":
            end_batch()
        elif step == "commit":
            source.commit()
    end_batch()
    return table, batches


def apply_current(target, changes):
    for row in fold_current(changes, ["id", "part"]).to_pylist():
        key, offset, deleted = (row["id"], row["part"]), row.pop("_offset"), row.pop("_deleted")
        if target.get(key, (0, None))[0] > offset:
            continue
        if deleted:
            target.pop(key, None)
        else:
            target[key] = (offset, row)


VERSIONS = pa.schema([*COLUMNS, ("valid_from_offset", pa.int64()), ("valid_to_offset", pa.int64())])


def apply_history(target, changes, *, late):
    known = last_known(pa.Table.from_pylist(target, VERSIONS), ["id", "part"]) if late else None
    folded = fold_history(changes, ["id", "part"], known)
    for closing in folded.closings.to_pylist():
        for version in target:
            if (version["id"], version["part"]) == (closing["id"], closing["part"]) and version[
                "valid_to_offset"
            ] is None:
                version |= {"valid_to": closing["valid_to"], "valid_to_offset": closing["valid_to_offset"]}
    target += folded.versions.to_pylist()


def told_versions(table):
    return sorted(
        (*one["key"], one["valid_from_offset"], one["valid_to_offset"], one["valid_to"]) for one in table.versions
    )


def kept_versions(target):
    return sorted(
        (one["id"], one["part"], one["valid_from_offset"], one["valid_to_offset"], one["valid_to"]) for one in target
    )


@given(STEPS)
def test_the_last_states_of_all_batches_make_the_table(steps):
    table, batches = tell(steps)
    target = {}
    for changes in batches:
        apply_current(target, changes)
    assert {key: row for key, (_, row) in target.items()} == table.rows


@given(STEPS)
def test_closings_and_versions_of_all_batches_make_the_history(steps):
    table, batches = tell(steps)
    target = []
    for changes in batches:
        apply_history(target, changes, late=False)
    assert kept_versions(target) == told_versions(table)
    totals = {(*one["key"], one["valid_from_offset"]): one["row"]["total"] for one in table.versions}
    assert {(one["id"], one["part"], one["valid_from_offset"]): one["total"] for one in target} == totals


@given(STEPS, st.lists(st.integers(0, 3), min_size=50, max_size=50), st.randoms(use_true_random=False))
def test_runs_that_overlap_and_are_out_of_order_change_nothing(steps, overlaps, random):
    table, batches = tell(steps)
    current, history = {}, []
    for number, overlap in zip(range(len(batches)), overlaps, strict=False):
        run = pa.concat_tables(batches[max(number - overlap, 0) : number + 1])
        places = list(range(run.num_rows))
        random.shuffle(places)
        run = run.take(pa.array(places, pa.int64()))
        apply_current(current, run)
        apply_history(history, run, late=True)
    assert {key: row for key, (_, row) in current.items()} == table.rows
    assert kept_versions(history) == told_versions(table)


def test_a_commit_makes_one_version_of_a_key():
    source = ChangingSource()
    orders = source.table()
    orders.insert(1, "Ann", 1.0)
    orders.update(1, total=2.0)
    orders.insert(2, "Bob", 3.0)
    orders.delete(2)
    folded = fold_history(source.batch().tables[0].changes, ["id"])
    (version,) = folded.versions.to_pylist()
    assert (version["id"], version["total"], version["valid_from_offset"]) == (1, 2.0, 2)
    assert version["valid_from"] == source.time.replace(second=1)


def test_a_row_that_was_read_at_an_offset_comes_after_the_change_of_that_offset():
    """So a row that is read once more to mend it counts, whatever the order in which a lake gives back its files."""
    source = ChangingSource()
    orders = source.table()
    orders.insert(1, "Ann", 1.0)
    change = source.batch().tables[0].changes
    read = change.set_column(0, change.schema.field(0), pa.array(["read"], pa.string()))
    read = read.set_column(read.column_names.index("total"), "total", pa.array([2.0]))
    for both in ([read, change], [change, read]):
        (row,) = fold_current(pa.concat_tables(both), ["id"]).to_pylist()
        assert row["total"] == 2.0


def test_a_changed_key_is_a_row_gone_and_a_row_come():
    source = ChangingSource()
    orders = source.table()
    orders.insert(1, "Ann", 1.0)
    source.batch()
    orders.update(1, id=7)
    last = fold_current(source.batch().tables[0].changes, ["id"]).to_pylist()
    assert {(row["id"], row["_deleted"]) for row in last} == {(1, True), (7, False)}


@pytest.mark.parametrize(
    "type_",
    [
        pa.int64(),
        pa.decimal128(20, 0),
        pa.float64(),
        pa.string(),
        pa.binary(),
        pa.bool_(),
        pa.date32(),
        pa.timestamp("us"),
    ],
    ids=str,
)
def test_every_type_can_be_a_key(type_):
    schema = pa.schema([*CHANGE, ("id", type_)])
    values = (
        pa.array([0, 1, 0], pa.int32()).cast(pa.string()) if type_ == pa.binary() else pa.array([0, 1, 0], pa.int32())
    )
    key = (values.cast(pa.int64()) if type_ == pa.timestamp("us") else values).cast(type_)
    changes = pa.table(
        [["insert", "insert", "delete"], [1, 2, 3], [1, 2, 3], pa.array([1, 2, 3]).cast(CHANGE[3][1]), key],
        schema=schema,
    )
    last = fold_current(changes, ["id"])
    assert last["_offset"].to_pylist() == [2, 3]
    known = pa.table({"id": key.slice(1, 1), "_known": [2]})
    folded = fold_history(changes, ["id"], known)
    assert folded.versions["valid_from_offset"].to_pylist() == [1]
    assert folded.closings["valid_to_offset"].to_pylist() == [1]


def test_no_changes_fold_to_nothing():
    empty = ChangingSource().table().table_changes([]).changes
    assert fold_current(empty, ["id"]).num_rows == 0
    folded = fold_history(empty, ["id"])
    assert (folded.closings.num_rows, folded.versions.num_rows) == (0, 0)
