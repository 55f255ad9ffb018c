"""Facts about drafts."""

from tailrace.model.commit import Draft
from tailrace.model.number import Position, SchemaId
from tailrace.model.op import Op


def test_a_draft_counts_its_changes():
    draft = Draft(Position("1"), 0)
    assert len(draft) == 0
    draft.add(Op.INSERT, SchemaId(1), b"[1]", after=b"{}")
    assert len(draft) == 1
    assert (draft.ops, draft.keys, draft.befores, draft.afters) == ([1], [b"[1]"], [None], [b"{}"])


def test_drafts_do_not_share_their_lists():
    Draft(Position("1"), 0).add(Op.DELETE, SchemaId(1), b"[1]")
    assert len(Draft(Position("2"), 0)) == 0


def test_a_truncation_is_of_a_table_and_has_neither_key_nor_images():
    draft = Draft(Position("1"), 0)
    draft.truncate(SchemaId(3))
    assert (draft.ops, draft.schemas, draft.keys) == ([Op.TRUNCATE], [3], [b"[]"])
    assert (draft.befores, draft.afters) == ([None], [None])
