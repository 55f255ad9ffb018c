from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tailrace.model.commit import Draft
from tailrace.model.op import Op
from tailrace.source.sqlite.chain import repair


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
