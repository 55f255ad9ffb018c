import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.model.commit import Draft
from tailrace.model.op import Op
from tailrace.model.table import Column, Kind
from tailrace.source.sqlite.change_table import CELLS_MAX, Border, ChangeCode, header, in_migration
from tailrace.source.sqlite.decode import Decoder, repair
from tailrace.source.sqlite.table_version import TableVersion

COLUMNS = (Column("id", Kind.I64), Column("u", Kind.STR), Column("v", Kind.ANY))
TABLE = TableVersion(1, "t", 1, COLUMNS, ("id",), "CREATE TABLE t(...)", 0, (0, 1))
KEYLESS = TableVersion(2, "free", 1, COLUMNS[1:], (), "CREATE TABLE free(...)", 0, (0,))
TIME_US = 86_400_000_000


def decoder(*tables, changes_max=1000, bytes_max=1 << 20, changes_first=None, cut_through=0, chained=()):
    made = Decoder(
        "c", changes_max=changes_max, bytes_max=bytes_max, changes_first=changes_first, cut_through=cut_through
    )
    for table in tables or (TABLE, KEYLESS):
        made.know(table, table.version)
    made.chain(frozenset(chained))
    return made


def rows_of(*records, table=TABLE, first=1):
    return [(number, header(table.version, code), *cells) for number, (code, *cells) in enumerate(records, first)]


def borders_of(*numbers):
    return [Border(number, TIME_US) for number in numbers]


def changes_of(drafts):
    return [
        (Op(op).word, json.loads(key), before and json.loads(before), after and json.loads(after))
        for draft in drafts
        for op, key, before, after in zip(draft.ops, draft.keys, draft.befores, draft.afters, strict=True)
    ]


def decoded(*records, table=TABLE):
    return changes_of(decoder().feed(rows_of(*records, table=table), borders_of(len(records))))


def row(number, u, v):
    return {"id": number, "u": u, "v": v}


def test_inserts_updates_and_deletes_become_changes_with_images():
    assert decoded(
        (ChangeCode.INSERT, 1, "a", None),
        (ChangeCode.UPDATE, 1, "a", None, 1, "b", 2.5),
        (ChangeCode.DELETE, 1, "b", 2.5),
    ) == [
        ("insert", [1], None, row(1, "a", None)),
        ("update", [1], row(1, "a", None), row(1, "b", 2.5)),
        ("delete", [1], row(1, "b", 2.5), None),
    ]


def test_an_update_of_the_key_is_a_delete_and_an_insert():
    assert decoded((ChangeCode.UPDATE, 1, "a", 0, 2, "a", 0)) == [
        ("delete", [1], row(1, "a", 0), None),
        ("insert", [2], None, row(2, "a", 0)),
    ]


def test_a_row_replaced_under_its_own_key_is_the_before_image():
    assert decoded((ChangeCode.INSERT_CANDIDATE, 1, "a", 0, 1, "b", 9), (ChangeCode.INSERT, 1, "b", 9)) == [
        ("update", [1], row(1, "a", 0), row(1, "b", 9))
    ]


def test_a_row_replaced_by_one_with_another_key_is_deleted_first():
    assert decoded((ChangeCode.INSERT_CANDIDATE, 1, "a", 0, None, "a", 9), (ChangeCode.INSERT, 5, "a", 9)) == [
        ("delete", [1], row(1, "a", 0), None),
        ("insert", [5], None, row(5, "a", 9)),
    ]


def test_one_insert_can_replace_several_rows():
    assert decoded(
        (ChangeCode.INSERT_CANDIDATE, 1, "x", 0, 1, "y", 9),
        (ChangeCode.INSERT_CANDIDATE, 2, "y", 0, 1, "y", 9),
        (ChangeCode.INSERT, 1, "y", 9),
    ) == [
        ("delete", [2], row(2, "y", 0), None),
        ("update", [1], row(1, "x", 0), row(1, "y", 9)),
    ]


def test_an_update_that_replaces_a_row_and_takes_its_key_updates_it():
    assert decoded((ChangeCode.UPDATE_CANDIDATE, 2, "y", 0, 2, "x", 0), (ChangeCode.UPDATE, 1, "x", 0, 2, "x", 0)) == [
        ("delete", [1], row(1, "x", 0), None),
        ("update", [2], row(2, "y", 0), row(2, "x", 0)),
    ]


def test_a_candidate_without_its_insert_is_forgotten():
    assert decoded((ChangeCode.INSERT_CANDIDATE, 1, "a", 0, 1, "b", 9), (ChangeCode.INSERT, 3, "c", 0)) == [
        ("insert", [3], None, row(3, "c", 0))
    ]


def test_a_candidate_whose_row_was_deleted_by_a_trigger_of_its_own_is_not_deleted_twice():
    assert decoded(
        (ChangeCode.INSERT_CANDIDATE, 1, "a", 0, 1, "b", 9),
        (ChangeCode.DELETE, 1, "a", 0),
        (ChangeCode.INSERT, 1, "b", 9),
    ) == [
        ("delete", [1], row(1, "a", 0), None),
        ("insert", [1], None, row(1, "b", 9)),
    ]


def test_a_candidate_that_was_changed_before_it_was_replaced_carries_the_change():
    assert decoded(
        (ChangeCode.INSERT_CANDIDATE, 1, "a", 0, 1, "b", 9),
        (ChangeCode.UPDATE, 1, "a", 0, 1, "a", 7),
        (ChangeCode.INSERT, 1, "b", 9),
    ) == [
        ("update", [1], row(1, "a", 0), row(1, "a", 7)),
        ("update", [1], row(1, "a", 7), row(1, "b", 9)),
    ]


def test_a_candidate_that_moved_out_of_the_way_was_not_replaced():
    assert decoded(
        (ChangeCode.INSERT_CANDIDATE, 1, "a", 0, None, "a", 9),
        (ChangeCode.UPDATE, 1, "a", 0, 1, "z", 0),
        (ChangeCode.INSERT, 2, "a", 9),
    ) == [
        ("update", [1], row(1, "a", 0), row(1, "z", 0)),
        ("insert", [2], None, row(2, "a", 9)),
    ]


def test_a_row_numbered_minus_one_is_not_taken_for_one_without_a_number():
    assert decoded((ChangeCode.INSERT_CANDIDATE, -1, "a", 0, -1, "b", 9), (ChangeCode.INSERT, 6, "b", 9)) == [
        ("insert", [6], None, row(6, "b", 9))
    ]
    assert decoded((ChangeCode.INSERT_CANDIDATE, -1, "a", 0, None, "a", 9), (ChangeCode.INSERT, 6, "a", 9)) == [
        ("delete", [-1], row(-1, "a", 0), None),
        ("insert", [6], None, row(6, "a", 9)),
    ]


def test_candidates_do_not_outlive_their_commit():
    rows = rows_of(
        (ChangeCode.INSERT_CANDIDATE, 1, "a", 0, 1, "b", 9),
        (ChangeCode.INSERT, 3, "c", 0),
        (ChangeCode.INSERT, 1, "b", 9),
    )
    drafts = decoder().feed(rows, borders_of(2, 3))
    assert changes_of(drafts)[-1] == ("insert", [1], None, row(1, "b", 9))


def test_a_table_without_a_key_is_identified_by_its_row_number():
    assert decoded((ChangeCode.INSERT, 7, "a", None), table=KEYLESS) == [("insert", [7], None, {"u": "a", "v": None})]


def test_schema_notes_carry_the_text_of_the_table_or_its_removal():
    assert decoded((ChangeCode.SCHEMA, 1)) == [("schema", [], None, {"ddl": "CREATE TABLE t(...)"})]
    assert decoded((ChangeCode.SCHEMA, 0)) == [("schema", [], None, {"ddl": 'DROP TABLE "t"'})]


def test_commits_end_at_borders_and_carry_position_and_time():
    rows = rows_of(*((ChangeCode.INSERT, number, "a", 0) for number in range(5)))
    machine = decoder()
    drafts = machine.feed(rows[:4], borders_of(1, 3, 5))
    assert [(draft.position, len(draft), draft.commit_time_us) for draft in drafts] == [
        ("c-1", 1, 86_400_000_000),
        ("c-3", 2, 86_400_000_000),
    ]
    assert [(draft.position, len(draft)) for draft in machine.feed(rows[4:], borders_of(5))] == [("c-5", 2)]


def test_a_commit_with_nothing_in_it_is_left_out():
    rows = rows_of(
        (ChangeCode.NOTE, None), (ChangeCode.INSERT_CANDIDATE, 1, "a", 0, 1, "b", 9), (ChangeCode.INSERT, 1, "a", 0)
    )
    assert [draft.position for draft in decoder().feed(rows, borders_of(1, 2, 3))] == ["c-3"]


@pytest.mark.parametrize("bounds", [{"changes_max": 2}, {"bytes_max": 30}], ids=["changes", "bytes"])
def test_a_commit_beyond_the_bound_is_cut_but_not_between_a_candidate_and_its_row(bounds):
    rows = rows_of(
        (ChangeCode.INSERT, 1, "a", 0),
        (ChangeCode.INSERT, 2, "b", 0),
        (ChangeCode.INSERT, 3, "c", 0),
        (ChangeCode.INSERT_CANDIDATE, 1, "a", 0, 1, "d", 0),
        (ChangeCode.INSERT, 1, "d", 0),
    )
    drafts = decoder(**bounds, cut_through=5).feed(rows, borders_of(5))
    assert [(draft.position, draft.whole) for draft in drafts] == [("c-2", True), ("c-5", True)]
    assert changes_of(drafts)[-1] == ("update", [1], row(1, "a", 0), row(1, "d", 0))
    drafts = decoder(**bounds).feed(rows, borders_of(5))
    assert [(draft.part, draft.more) for draft in drafts] == [(0, True), (1, False)]
    assert drafts[-1].position == "c-5"
    assert len({draft.commit_time_us for draft in drafts}) == 1
    assert changes_of(drafts)[-1] == ("update", [1], row(1, "a", 0), row(1, "d", 0))


@pytest.mark.parametrize("changes", range(1, 12))
@pytest.mark.parametrize("fed", [1, 2, 5, 100])
def test_no_part_is_empty_and_all_but_the_last_are_full(changes, fed):
    rows = [*rows_of(*[(ChangeCode.INSERT, number, "u", "v") for number in range(changes)]), (changes + 1, 0, None)]
    machine = decoder(TABLE, changes_max=3)
    drafts = [
        draft
        for begin in range(0, len(rows), fed)
        for draft in machine.feed(rows[begin : begin + fed], borders_of(changes + 1))
    ]
    assert [len(draft) for draft in drafts[:-1]] == [3] * ((changes - 1) // 3)
    assert 1 <= len(drafts[-1]) <= 3
    assert [draft.part for draft in drafts] == list(range(len(drafts)))
    assert [draft.more for draft in drafts] == [True] * (len(drafts) - 1) + [False]
    assert drafts[-1].position == f"c-{changes + 1}"


def test_behind_a_backlog_without_borders_commits_come_in_parts():
    rows = rows_of(*[(ChangeCode.INSERT, number, "u", "v") for number in range(60)])
    drafts = decoder(TABLE, changes_max=16, changes_first=2, cut_through=40).feed(rows, borders_of(40, 60))
    assert [(len(draft), draft.part) for draft in drafts] == [(2, 0), (4, 0), (8, 0), (16, 0), (10, 0), (16, 0), (4, 1)]
    assert [draft.more for draft in drafts] == [False] * 5 + [True, False]


def test_a_first_run_without_a_border_is_cut_small_and_then_in_growing_steps():
    rows = rows_of(*[(ChangeCode.INSERT, number, "u", "v") for number in range(60)])
    made = decoder(TABLE, changes_max=16, changes_first=2, cut_through=60)
    drafts = made.feed(rows, borders_of(40, 60))
    assert [len(draft) for draft in drafts] == [2, 4, 8, 16, 10, 16, 4]


def test_a_row_in_parts_is_put_together_also_across_two_readings():
    columns = tuple(Column(f"x{number}", Kind.I64) for number in range(CELLS_MAX + 3))
    wide = TableVersion(3, "wide", 1, columns, ("x0",), "", None, None)
    cells = list(range(CELLS_MAX + 3))
    insert = rows_of((ChangeCode.INSERT, *cells[:CELLS_MAX]), (ChangeCode.MORE, *cells[CELLS_MAX:]), table=wide)
    doubled = cells + cells
    update = rows_of(
        (ChangeCode.UPDATE, *doubled[:CELLS_MAX]),
        (ChangeCode.MORE, *doubled[CELLS_MAX : 2 * CELLS_MAX]),
        (ChangeCode.MORE, *doubled[2 * CELLS_MAX :]),
        table=wide,
        first=3,
    )
    machine = decoder(wide)
    drafts = (
        machine.feed(insert[:1], borders_of(9))
        + machine.feed(insert[1:] + update[:2], borders_of(2, 5))
        + machine.feed(update[2:], borders_of(5))
    )
    image = {f"x{number}": number for number in cells}
    assert changes_of(drafts) == [("insert", [0], None, image), ("update", [0], image, image)]


def test_only_unknown_versions_are_asked_for():
    rows = rows_of((ChangeCode.INSERT, 1, "a", 0)) + rows_of(
        (ChangeCode.INSERT, 1, "a"), table=TableVersion(9, "n", 1, COLUMNS, (), "", 0, ())
    )
    assert decoder().unknown(rows) == {9}


def test_tables_with_triggers_of_the_users_are_put_in_order():
    rows = rows_of((ChangeCode.UPDATE, 1, "a", 0, 1, "a", 1), (ChangeCode.INSERT, 1, "a", 0))
    drafts = decoder(chained=[1]).feed(rows, borders_of(2))
    assert [change[0] for change in changes_of(drafts)] == ["insert", "update"]


def marked(drafts):
    return [(draft.migration, draft.position, [key.decode() for key in draft.keys]) for draft in drafts]


def insert(number):
    return (ChangeCode.INSERT, number, "x", None)


def test_a_mark_makes_what_follows_it_in_its_transaction_moved_data():
    records = (insert(1), (ChangeCode.NOTE, "migration"), insert(2), insert(3), insert(4))
    rows = [
        (number, 0 if code is ChangeCode.NOTE else header(1, code), *cells)
        for number, (code, *cells) in enumerate(records, 1)
    ]
    assert marked(decoder().feed(rows, borders_of(4, 5))) == [
        (False, "c-1", ["[1]"]),
        (True, "c-4", ["[2]", "[3]"]),
        (False, "c-5", ["[4]"]),
    ]


def test_the_end_of_a_bulk_load_can_be_told_where_the_border_is_lost():
    records = (insert(1), (ChangeCode.NOTE, "migration"), insert(2), (ChangeCode.NOTE, "migration end"), insert(3))
    rows = [
        (number, 0 if code is ChangeCode.NOTE else header(1, code), *cells)
        for number, (code, *cells) in enumerate(records, 1)
    ]
    assert marked(decoder().feed(rows, borders_of(5))) == [
        (False, "c-1", ["[1]"]),
        (True, "c-4", ["[2]"]),
        (False, "c-5", ["[3]"]),
    ]


def test_a_bulk_load_that_is_cut_goes_on_as_one_also_behind_a_restart():
    rows = [(1, 0, "migration"), *rows_of(insert(1), insert(2), insert(3), first=2)]
    whole = marked(decoder(changes_max=1, cut_through=4).feed(rows, borders_of(4)))
    assert whole == [(True, "c-2m", ["[1]"]), (True, "c-3m", ["[2]"]), (True, "c-4", ["[3]"])]
    again = Decoder("c", changes_max=1, bytes_max=1 << 20, cut_through=4, migration=in_migration(whole[0][1]))
    again.know(TABLE, TABLE.version)
    assert marked(again.feed(rows[2:], borders_of(4))) == whole[1:]
    assert not in_migration(whole[2][1])


def test_other_notes_mean_nothing():
    rows = [(1, 0, None), (2, 0, "hello"), (3, 0, "migration end"), *rows_of(insert(1), first=4)]
    assert marked(decoder().feed(rows, borders_of(4))) == [(False, "c-4", ["[1]"])]


def draft_of(*steps):
    draft = Draft("p", 0)
    for op, key, before, after in steps:
        draft.add(op, 1, key, before=before, after=after)
    return draft


def steps_of(draft):
    return list(zip(draft.ops, draft.keys, draft.befores, draft.afters, strict=True))


def repaired(*steps):
    draft = draft_of(*steps)
    repair(draft, {1})
    return steps_of(draft)


def test_an_update_noted_before_the_insert_that_caused_it_comes_after_it():
    assert repaired((Op.UPDATE, b"k", b"0", b"1"), (Op.INSERT, b"k", None, b"0")) == [
        (Op.INSERT, b"k", None, b"0"),
        (Op.UPDATE, b"k", b"0", b"1"),
    ]


def test_two_statements_of_a_touching_trigger_are_put_in_order():
    mixed = [
        (Op.UPDATE, b"k", b"b", b"c"),
        (Op.UPDATE, b"k", b"a", b"b"),
        (Op.UPDATE, b"other", b"x", b"y"),
        (Op.UPDATE, b"k", b"d", b"e"),
        (Op.UPDATE, b"k", b"c", b"d"),
    ]
    assert [(before, after) for _, key, before, after in repaired(*mixed) if key == b"k"] == [
        (b"a", b"b"),
        (b"b", b"c"),
        (b"c", b"d"),
        (b"d", b"e"),
    ]


def test_an_outdated_before_image_is_replaced_by_what_is_known():
    assert repaired((Op.UPDATE, b"k", b"0", b"1"), (Op.DELETE, b"k", b"0", None)) == [
        (Op.UPDATE, b"k", b"0", b"1"),
        (Op.DELETE, b"k", b"1", None),
    ]


def test_other_tables_and_schema_changes_are_left_alone():
    draft = Draft("p", 0)
    draft.add(Op.UPDATE, 2, b"k", before=b"0", after=b"1")
    draft.add(Op.UPDATE, 2, b"k", before=b"7", after=b"8")
    draft.add(Op.SCHEMA, 1, b"[]", after=b"x")
    draft.add(Op.SCHEMA, 1, b"[]", after=b"y")
    before = steps_of(draft)
    repair(draft, {1})
    assert steps_of(draft) == before


images = st.sampled_from([None, b"a", b"b", b"c"])


@given(st.lists(images, min_size=2, max_size=8))
def test_a_history_that_fits_is_left_alone(states):
    pairs = [(before, after) for before, after in pairwise(states) if before != after or before]
    steps = [(_op(before, after), b"k", before, after) for before, after in pairs if (before, after) != (None, None)]
    fits = all(steps[n][2] == steps[n - 1][3] for n in range(1, len(steps)))
    draft = draft_of(*steps)
    repair(draft, {1})
    if fits:
        assert steps_of(draft) == steps


@given(st.lists(images, min_size=2, max_size=7, unique=True), st.randoms())
def test_a_mixed_up_history_of_distinct_states_is_restored(states, random):
    steps = [(_op(before, after), b"k", before, after) for before, after in pairwise(states)]
    mixed = list(steps)
    random.shuffle(mixed)
    assert repaired(*mixed) == steps


def _op(before, after):
    if before is None:
        return Op.INSERT
    return Op.DELETE if after is None else Op.UPDATE
