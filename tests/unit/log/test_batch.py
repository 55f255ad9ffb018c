import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from held import held_memory
from log_samples import draft
from tailrace.log.batch import conform, encode_drafts, gather, last_commit, measure, pieces
from tailrace.model.chunk import ENVELOPE
from tailrace.model.commit import CommitId, Draft
from tailrace.model.number import Position, SchemaId
from tailrace.model.op import Op

changes = st.tuples(
    st.sampled_from(Op), st.integers(1, 3), st.binary(max_size=20), st.none() | st.binary(), st.none() | st.binary()
)


@st.composite
def drafts(draw) -> Draft:
    made = Draft(
        Position(draw(st.text(max_size=8))), draw(st.integers(-(2**63), 2**63 - 1)), draw(st.integers(0, 2**62))
    )
    made.migration = draw(st.booleans())
    for op, schema, key, before, after in draw(st.lists(changes, min_size=1, max_size=5)):
        made.add(op, SchemaId(schema), key, before=before, after=after)
    return made


@given(st.lists(drafts(), min_size=1, max_size=6), st.integers(1, 2**40), st.integers(1, 2**40), st.integers(1, 2**60))
def test_drafts_come_back_numbered_and_otherwise_unchanged(given_drafts, first_offset, first_index, first_hlc):
    batch = encode_drafts(given_drafts, first_offset, first_index, first_hlc)
    assert batch.schema == ENVELOPE
    batch.validate(full=True)
    expected = [
        (index, one.commit_time_us, one.txid, op, schema, key, before, after, position, first_hlc + rank, one.migration)
        for rank, (index, one) in enumerate(enumerate(given_drafts, first_index))
        for op, schema, key, before, after, position in zip(
            one.ops,
            one.schemas,
            one.keys,
            one.befores,
            one.afters,
            [None] * (len(one) - 1) + [one.position],
            strict=True,
        )
    ]
    rows = list(zip(*(batch.column(name).to_pylist() for name in ENVELOPE.names), strict=True))
    assert rows == [(first_offset + number, *row) for number, row in enumerate(expected)]
    assert last_commit(batch) == CommitId(given_drafts[-1].position, given_drafts[-1].txid)


@given(st.lists(drafts(), min_size=1, max_size=6))
def test_the_size_is_about_what_the_frame_takes(given_drafts):
    count, size_bytes = measure(given_drafts, 3)
    batch = encode_drafts(given_drafts, 1, 1)
    assert count == batch.num_rows
    assert batch.nbytes // 3 <= size_bytes <= batch.nbytes + 64 * count


def ragged() -> Draft:
    made = Draft(Position("p"), 0)
    made.add(Op.INSERT, SchemaId(1), b"[1]")
    made.keys.append(b"[2]")
    return made


def with_schema(number: int) -> Draft:
    made = Draft(Position("p"), 0)
    made.add(Op.INSERT, SchemaId(number), b"[1]")
    return made


@pytest.mark.parametrize(
    "wrong",
    [[], [Draft(Position("p"), 0)], [ragged()], [with_schema(4)], [with_schema(0)]],
    ids=["no draft", "no change", "columns of two lengths", "a schema not put", "no schema"],
)
def test_drafts_that_only_a_bug_can_make_are_refused(wrong):
    with pytest.raises(ValueError, match="draft"):
        measure(wrong, 3)


def test_a_column_that_an_old_segment_lacks_is_null_and_an_unknown_one_is_left_out():
    batch = encode_drafts([with_schema(1)], 1, 1)
    old = batch.drop_columns(["before"]).append_column("unknown", pa.array([7]))
    mended = conform(old)
    assert mended.schema == ENVELOPE
    assert mended.column("before").to_pylist() == [None]
    assert mended.column("key").to_pylist() == [b"[1]"]
    assert conform(batch) is batch


def test_a_large_batch_is_cut_into_pieces_that_join_to_the_same():
    one = Draft(Position("p"), 0)
    for number in range(10_000):
        one.add(Op.INSERT, SchemaId(1), b"[%d]" % number)
    batch = encode_drafts([one], 1, 1)
    by_count = pieces(batch, 1000)
    by_size = pieces(batch, 10 * 1024 * 1024)
    assert max(piece.num_rows for piece in by_count) == 4096
    assert max(piece.num_rows for piece in by_size) == 1000
    assert pa.concat_batches(by_count) == pa.concat_batches(by_size) == batch
    assert pieces(batch.slice(0, 10), 1000)[0].num_rows == 10


def test_small_neighbours_are_joined_and_large_ones_left_alone():
    batch = encode_drafts([with_schema(1)], 1, 1)
    assert [joined.num_rows for joined in gather([(batch, 1000)] * 300)] == [132, 132, 36]
    assert [joined.num_rows for joined in gather([(batch, 1000)] * 2 + [(batch, 500_000)] * 3)] == [2, 1, 1, 1]
    assert next(gather([(batch, 500_000)])) == batch
    assert list(gather([])) == []


def test_what_is_gathered_from_a_block_holds_its_own_memory_alone():
    """A batch that shows a part of a block's bytes holds all of them."""
    small, large = encode_drafts([with_schema(1)], 1, 1), encode_drafts([draft(1, 10_000, "x" * 200)], 2, 2)
    frames = [memoryview(batch.serialize()) for batch in (small, large)]
    block = pa.py_buffer(b"".join(frames))
    places = [(0, len(frames[0])), (len(frames[0]), len(frames[1]))]
    shown = [(pa.ipc.read_record_batch(block.slice(*place), ENVELOPE), place[1]) for place in places]
    gathered = list(gather(shown))
    assert pa.concat_batches(gathered) == pa.concat_batches([small, large])
    assert len(gathered) > 2
    assert all(held_memory(batch) <= 1.1 * batch.nbytes + 4096 for batch in gathered)
    assert held_memory(shown[0][0]) >= block.size  # what it would hold
