"""Facts about WebSocket frames, with the `websockets` library as the oracle."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.frames import Frame, Opcode

from tailrace.delivery.frame import frame_array, frame_of, payloads

EDGES = [0, 1, 125, 126, 127, 65_535, 65_536, 70_000]


def oracle(text):
    return Frame(Opcode.TEXT, text).serialize(mask=False)


@pytest.mark.parametrize("length", EDGES)
def test_a_frame_is_what_the_standard_says(length):
    assert frame_of(b"x" * length) == oracle(b"x" * length)


@pytest.mark.parametrize("lengths", [EDGES, EDGES[:6], [5]], ids=["long ones too", "no long ones", "one"])
def test_an_array_of_messages_becomes_an_array_of_frames(lengths):
    texts = [b"y" * length for length in lengths]
    assert frame_array(pa.array(texts, pa.binary())).to_pylist() == [oracle(text) for text in texts]


@given(st.lists(st.binary(max_size=300)))
def test_messages_come_out_of_frames_as_they_went_in(texts):
    assert list(payloads(b"".join(map(frame_of, texts)))) == texts


@pytest.mark.parametrize("length", EDGES)
def test_messages_of_every_length_come_out_again(length):
    texts = [b"a", b"z" * length, b"b"]
    assert list(payloads(b"".join(map(frame_of, texts)))) == texts
