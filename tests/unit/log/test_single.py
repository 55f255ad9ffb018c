import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tailrace.log.batch import encode_drafts
from tailrace.log.decode import decode
from tailrace.log.segment import Segment
from tailrace.log.single import SingleFrames
from tailrace.log.writer import encode_frame
from tailrace.model.chunk import ENVELOPE
from tailrace.model.commit import Draft
from tailrace.model.number import Index, Offset, Position, SchemaId
from tailrace.model.op import Op

SEGMENT = Segment(
    first_offset=Offset(1), first_index=Index(1), previous_index=Index(0), created_us=1, header_bytes=0, schema=ENVELOPE
)
images = st.none() | st.binary(max_size=200)
changes = st.tuples(st.sampled_from(Op), st.integers(1, 3), st.binary(max_size=20), images, images)


@st.composite
def commits(draw, changes_max: int = 3) -> Draft:
    made = Draft(Position(draw(st.text(max_size=8))), draw(st.integers(-(2**63), 2**63 - 1)))
    made.migration = draw(st.booleans())
    for op, schema, key, before, after in draw(st.lists(changes, min_size=1, max_size=changes_max)):
        made.add(op, SchemaId(schema), key, before=before, after=after)
    return made


def frames_of(drafts: list[Draft]) -> bytes:
    """Return a frame for each commit."""
    offset, data = 1, b""
    for index, one in enumerate(drafts, 1):
        frame = encode_frame([one], Offset(offset), Index(index), 1, index)
        data += b"".join(frame.parts)
        offset += len(one)
    return data


@given(st.lists(commits(), min_size=1, max_size=30))
def test_frames_of_one_change_give_what_one_frame_of_all_gives(drafts):
    data = frames_of(drafts)
    batches = decode(data, 0, SEGMENT)
    whole = pa.concat_batches([batch for batch, _ in batches])
    whole.validate(full=True)
    assert whole.equals(encode_drafts(drafts, Offset(1), Index(1), 1))
    assert sum(size for _, size in batches) == len(data) - 48 * len(drafts)


def test_a_run_of_frames_of_one_change_is_one_batch_behind_the_first_of_a_kind():
    drafts = []
    for number in range(100):
        one = Draft(Position(f"p{number}"), number)
        one.add(Op.INSERT, SchemaId(1), b"[%d]" % number, after=b"x" * (number % 40))
        drafts.append(one)
    counts = [batch.num_rows for batch, _ in decode(frames_of(drafts), 0, SEGMENT)]
    assert counts == [1, 99]


def test_a_payload_of_which_no_kind_is_known_is_left_to_arrow():
    payload = bytes(encode_drafts([_one(1)], Offset(1), Index(1)).serialize())
    single = SingleFrames()
    assert not single.add(payload, 0, len(payload))
    single.learn(payload, 0, len(payload), encode_drafts([_one(1), _one(2)], Offset(1), Index(1)))
    assert not single.add(payload, 0, len(payload))
    single.learn(payload, 0, len(payload), encode_drafts([_one(1)], Offset(1), Index(1)))
    assert single.add(payload, 0, len(payload))
    assert single.taken().equals(encode_drafts([_one(1)], Offset(1), Index(1)))


def test_what_was_learnt_wrongly_is_not_kept():
    payload = bytes(encode_drafts([_one(1)], Offset(1), Index(1)).serialize())
    single = SingleFrames()
    single.learn(payload, 0, len(payload), encode_drafts([_one(2)], Offset(1), Index(1)))
    assert not single.add(payload, 0, len(payload))


def _one(number: int) -> Draft:
    made = Draft(Position(f"p{number}"), number)
    made.add(Op.INSERT, SchemaId(1), b"[%d]" % number, after=b"{}")
    return made
