"""What a comparison of digests finds, held against plain dictionaries."""

import json
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.pipeline.digest import Difference, Digests, Side
from tailrace.pipeline.unchanged import UNCHANGED

COLUMNS = pa.schema([("id", pa.int64()), ("name", pa.string()), ("qty", pa.float64())])
CHANGES = pa.schema([("_change_type", pa.string()), ("_offset", pa.int64()), *COLUMNS])
AT = 100


def rows_of(state, schema=COLUMNS, **more):
    rows = [{"id": key[0], "name": key[1], "qty": value, **more} for key, value in state.items()]
    return pa.Table.from_pylist(rows, schema)


def read_of(state, offset, number):
    table = rows_of(state, CHANGES, _change_type="read", _offset=offset)
    return table.append_column("_range", pa.repeat(pa.scalar(number, pa.int64()), len(table)))


def changes_of(changes):
    rows = [
        {"_change_type": kind, "_offset": offset, "id": key[0], "name": key[1], "qty": value}
        for kind, offset, key, value in changes
    ]
    return pa.Table.from_pylist(rows, CHANGES)


@pytest.fixture
def digests(tmp_path):
    with closing(Digests(tmp_path, ["id", "name"], COLUMNS, rows_at_once=3)) as made:
        yield made


KEYS = st.tuples(st.integers(0, 30), st.sampled_from(["a", "b", None]))
STATES = st.dictionaries(KEYS, st.sampled_from([None, 0.5, 2.0]), max_size=40)
LATER = st.lists(st.tuples(st.sampled_from(["insert", "delete"]), KEYS, st.sampled_from([None, 7.0])), max_size=10)


@settings(max_examples=12)
@given(STATES, STATES, LATER, st.integers(0, 12))
def test_what_differs_is_found_whatever_happens_meanwhile(source, sink, later, read_late):
    """Rows of the source are read while changes happen: each row as it is after the first `read_late` of them."""
    with TemporaryDirectory() as directory, closing(Digests(Path(directory), ["id", "name"], COLUMNS, 3)) as digests:
        page, final, held = dict(source), dict(source), dict(sink)
        late = []
        for place, (kind, key, value) in enumerate(later, 1):
            late.append((kind, AT + place, key, value))
            states = [final, held, *([page] if place <= read_late else [])]
            for state in states:
                state.pop(key, None) if kind == "delete" else state.update({key: value})
        digests.add_rows(rows_of(sink), AT)
        digests.add_changes(Side.SOURCE, read_of(page, AT + min(read_late, len(later)), 1))
        digests.add_changes(Side.BOTH, changes_of(late))
        digests.compare()
        expected = dict.fromkeys(final.keys() - held.keys(), Difference.MISSING)
        expected |= dict.fromkeys(held.keys() - final.keys(), Difference.EXTRA)
        expected |= {key: Difference.DIFFERS for key in final.keys() & held.keys() if final[key] != held[key]}
        found = {(row["id"], row["name"]): row["_fault"] for row in digests.first(1000).to_pylist()}
        assert found == expected
        assert digests.rows == len(final)
        assert sum(digests.counts.values()) == len(expected)


def test_of_rows_that_are_read_again_those_that_the_sink_lacks_or_has_otherwise_are_wanted(digests):
    source = {(1, "a"): 1.0, (2, "a"): 2.0, (3, None): 3.0, (4, "a"): 4.0}
    digests.add_rows(rows_of({(1, "a"): 1.0, (2, "a"): 9.0, (7, "a"): 7.0, (8, None): 8.0}), AT)
    digests.add_changes(Side.SOURCE, read_of(dict(list(source.items())[:2]), AT, 1))
    digests.add_changes(Side.SOURCE, read_of(dict(list(source.items())[2:]), AT, 2))
    digests.compare()
    assert digests.ranges_differing == (1, 2)
    assert digests.wanted(rows_of(source))["id"].to_pylist() == [2, 3, 4]
    unwanted = [row for keys in digests.unwanted(1) for row in keys.to_pylist()]
    assert sorted(row["id"] for row in unwanted) == [7, 8]


def test_a_row_that_the_sink_has_twice_is_found(digests):
    digests.add_rows(rows_of({(1, "a"): 1.0, (2, "a"): 2.0}), AT)
    digests.add_rows(rows_of({(2, "a"): 2.0}), AT)
    digests.add_changes(Side.SOURCE, read_of({(1, "a"): 1.0, (2, "a"): 2.0}, AT, 1))
    digests.compare()
    assert digests.counts == {Difference.TWICE: 1}
    assert [keys.to_pylist() for keys in digests.unwanted(10)] == [[{"id": 2, "name": "a"}]]
    assert digests.wanted(rows_of({(1, "a"): 1.0, (2, "a"): 2.0}))["id"].to_pylist() == [2]


def test_the_row_before_an_update_comes_before_the_row_after_it(digests):
    later = [("update_postimage", 101, (1, "a"), 5.0), ("update_preimage", 101, (1, "a"), 1.0)]
    digests.add_rows(rows_of({(1, "a"): 1.0}), AT)
    digests.add_changes(Side.SOURCE, read_of({(1, "a"): 1.0}, AT, 1))
    digests.add_changes(Side.BOTH, changes_of(later))
    digests.compare()
    assert (digests.counts, digests.rows) == ({}, 1)


@pytest.mark.parametrize("late", [False, True])
def test_what_was_before_a_truncation_is_no_more(digests, late):
    """Before the sink's offset it is the source's alone: the sink has applied it. After it, it is of both."""
    one, two = (1, "a"), (2, "a")
    truncated = AT + 5 if late else AT - 5
    digests.add_rows(rows_of({one: 1.0} if late else {two: 2.0}), AT)
    digests.add_changes(Side.SOURCE, read_of({one: 1.0}, AT - 10, 1))
    changes = changes_of(
        [
            ("insert", truncated - 1, one, 5.0),
            ("truncate", truncated, (None, None), None),
            ("insert", truncated + 1, two, 2.0),
        ]
    )
    digests.add_changes(Side.BOTH if late else Side.SOURCE, changes)
    digests.compare()
    assert digests.counts == {}
    assert digests.rows == 1


def test_names_of_columns_may_be_any(tmp_path):
    columns = pa.schema([('we "quote"', pa.string()), ("range", pa.int64()), ("k0", pa.int64())])
    rows = pa.table({'we "quote"': ["x"], "range": [1], "k0": [2]}, schema=columns)
    with closing(Digests(tmp_path, ['we "quote"', "k0"], columns)) as digests:
        digests.add_rows(rows, AT)
        digests.compare()
        assert digests.counts == {Difference.EXTRA: 1}
        assert digests.first(9).column_names == ['we "quote"', "k0", "_fault"]


CELLS = st.sampled_from([None, "x", "y"])
WIDE = pa.schema([("id", pa.int64()), ("name", pa.string()), ("qty", pa.string())])
STEPS = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.one_of(
            st.none(),
            st.fixed_dictionaries({"name": CELLS, "qty": CELLS}),
            st.dictionaries(st.sampled_from(["name", "qty"]), CELLS, max_size=1),
        ),
    ),
    max_size=12,
)


def partial_changes(steps, state, first):
    """Apply steps to a state; return them as changes: what is whole is an insert, the rest updates of rows there."""
    rows = []
    for offset, (key, cells) in enumerate(steps, first):
        if cells is None:
            state.pop(key, None)
            rows.append({"_change_type": "delete", "_offset": offset, "id": key, UNCHANGED: '["name","qty"]'})
        elif key in state or len(cells) == 2:
            missing = [name for name in ("name", "qty") if name not in cells]
            state[key] = {**state.get(key, {}), **cells}
            kind = "update_postimage" if missing else "insert"
            told = json.dumps(missing) if missing else None
            rows.append({"_change_type": kind, "_offset": offset, "id": key, **cells, UNCHANGED: told})
    schema = pa.schema([("_change_type", pa.string()), ("_offset", pa.int64()), *WIDE, (UNCHANGED, pa.string())])
    return pa.Table.from_pylist(rows, schema)


@settings(max_examples=15)
@given(
    st.dictionaries(st.integers(0, 3), st.fixed_dictionaries({"name": CELLS, "qty": CELLS})),
    st.dictionaries(st.integers(0, 3), st.fixed_dictionaries({"name": CELLS, "qty": CELLS})),
    STEPS,
    STEPS,
)
def test_rows_that_were_sent_in_part_are_compared_by_what_they_are(source, extra, early, late):
    """The page of the source is older than the sink, which has what happened up to `AT`, and a few faults."""
    final = {key: dict(row) for key, row in source.items()}
    first = partial_changes(early, final, AT - 20)
    held = {**{key: dict(row) for key, row in final.items()}, **{key: dict(row) for key, row in extra.items()}}
    second = partial_changes(late, final, AT + 1)
    at_sink = [{"id": key, **row} for key, row in held.items()]
    partial_changes([step for step in late if step[1] is None or len(step[1]) == 2 or step[0] in held], held, AT + 1)
    read = [{"_change_type": "read", "_offset": AT - 30, "_range": 1, "id": k, **row} for k, row in source.items()]
    ranged = pa.schema([("_change_type", pa.string()), ("_offset", pa.int64()), ("_range", pa.int64()), *WIDE])
    with TemporaryDirectory() as directory, closing(Digests(Path(directory), ["id"], WIDE, 3, by_column=True)) as made:
        made.add_rows(pa.Table.from_pylist(at_sink, WIDE), AT)
        made.add_changes(Side.SOURCE, pa.Table.from_pylist(read, ranged))
        made.add_changes(Side.SOURCE, first)
        made.add_changes(Side.BOTH, second)
        made.compare()
        found = {row["id"]: row["_fault"] for row in made.first(100).to_pylist()}
    assert {key for key, fault in found.items() if fault == Difference.DIFFERS} == {
        key for key in final.keys() & held.keys() if final[key] != held[key]
    }
