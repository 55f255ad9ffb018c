import struct

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from held import held_memory
from log_samples import draft
from tailrace.log import batch, payload
from tailrace.log.payload import encode_payload, find_head, layout, measure
from tailrace.model.chunk import ENVELOPE
from tailrace.model.commit import Draft
from tailrace.model.number import Position, SchemaId
from tailrace.model.op import Op

needs_compiled = pytest.mark.skipif(payload.compiled is None, reason="the compiled helper was not built")

images = st.none() | st.binary(max_size=40)
changes = st.tuples(st.sampled_from(Op), st.integers(1, 300), st.binary(max_size=20), images, images)


@st.composite
def drafts(draw, *, part: bool = False) -> Draft:
    time_us, txid = draw(st.integers(-(2**63), 2**63 - 1)), draw(st.integers(-(2**63), 2**63 - 1))
    made = Draft(Position(draw(st.text(st.characters(codec="utf-8"), max_size=8))), time_us, txid)
    made.migration = draw(st.booleans())
    if part:
        made.part, made.more = draw(st.integers(0, 3)), draw(st.booleans())
    for op, schema, key, before, after in draw(st.lists(changes, min_size=1, max_size=20)):
        made.add(op, SchemaId(schema), key, before=before, after=after)
    return made


groups = st.lists(drafts(), min_size=1, max_size=12) | st.tuples(drafts(part=True))


@needs_compiled
@given(groups, st.integers(1, 2**40), st.integers(1, 2**40), st.integers(1, 2**60))
def test_both_ways_give_the_same_bytes(group, first_offset, first_index, first_hlc):
    pure = batch.encode_drafts(group, first_offset, first_index, first_hlc)
    made, data = encode_payload(group, first_offset, first_index, first_hlc)
    made.validate(full=True)
    assert made == pure
    assert bytes(data) == bytes(pure.serialize())
    assert measure(group, 300) == batch.measure(group, 300)


@pytest.mark.parametrize(
    "group",
    [[draft(1, 20_000)], [draft(number, 1 + number % 5) for number in range(5000)], [draft(1, 2, "x" * 300_000)]],
    ids=["one large commit", "many small ones", "large images"],
)
def test_large_payloads_are_the_same_bytes_too(encoder, group):
    """The compiled helper lets other threads run while it writes these."""
    made, data = encode_payload(group, 7, 8, 9)
    pure = batch.encode_drafts(group, 7, 8, 9)
    assert made == pure
    assert bytes(data) == bytes(pure.serialize())


def test_a_batch_shows_the_bytes_of_its_payload(encoder):
    made, data = encode_payload([draft(1, 1000, "x" * 100)], 1, 1)
    assert pa.ipc.read_record_batch(pa.py_buffer(data), ENVELOPE) == made
    if encoder == "compiled":
        assert held_memory(made) <= 1.1 * len(data)


def odd(**fields: object) -> Draft:
    made = draft(1, 2)
    for name, value in fields.items():
        setattr(made, name, value)
    return made


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (odd(keys=[b"[1]", 7]), (pa.ArrowTypeError, pa.ArrowInvalid)),
        (odd(afters=[b"{}", 7.5]), (pa.ArrowTypeError, pa.ArrowInvalid)),
        (odd(txid=2**63), struct.error),
        (odd(commit_time_us=-(2**63) - 1), struct.error),
        (odd(ops=[1, 256]), ValueError),
        (odd(schemas=[1, 2**31]), OverflowError),
        (odd(position="\ud800"), UnicodeEncodeError),
    ],
    ids=["a key", "an image", "a transaction", "a time", "an operation", "a schema", "a position"],
)
def test_both_ways_refuse_what_does_not_fit_in_the_same_words(encoder, wrong, error):
    with pytest.raises(error) as expected:
        batch.encode_drafts([wrong], 1, 1)
    with pytest.raises(error) as caught:
        encode_payload([wrong], 1, 1)
    assert str(caught.value) == str(expected.value)


def test_images_that_are_bytes_in_another_way_are_encoded_alike(encoder):
    given_draft = odd(afters=[bytearray(b"{}"), None], keys=[b"[1]", b"[2]"])
    made, data = encode_payload([given_draft], 1, 1)
    assert made.column("after").to_pylist() == [b"{}", None]
    assert bytes(data) == bytes(batch.encode_drafts([given_draft], 1, 1).serialize())
    assert measure([given_draft], 1) == batch.measure([given_draft], 1)


@pytest.mark.parametrize(
    "wrong",
    [
        [],
        [Draft(Position("p"), 0)],
        [odd(keys=[b"[1]"])],
        [odd(schemas=[1, 4])],
        [odd(schemas=[0, 1])],
        [odd(part=1), draft(2)],
        [draft(2), odd(more=True)],
    ],
    ids=["no draft", "no change", "ragged", "a schema not put", "no schema", "a part with others", "a part behind"],
)
def test_drafts_that_only_a_bug_can_make_are_refused(encoder, wrong):
    with pytest.raises(ValueError, match=r"draft|commit"):
        measure(wrong, 3)


def test_the_head_of_a_message_is_found_in_what_arrow_writes():
    message = bytes(batch.encode_drafts([draft(1, 3)], 1, 1).serialize())
    head = find_head(message)
    body_at, rows_at, columns_at, buffers_at = head.places
    number = [int.from_bytes(message[place : place + 8], "little") for place in range(0, len(head.data), 8)]
    assert number[body_at // 8] == len(message) - len(head.data)
    assert number[rows_at // 8] == 3
    assert number[columns_at // 8 :][:24:2] == [3] * 12
    assert number[buffers_at // 8 :][2:4] == [0, 24]


@needs_compiled
def test_the_compiled_helper_knows_the_fields_and_columns_of_today():
    assert layout() == payload.compiled.LAYOUT
