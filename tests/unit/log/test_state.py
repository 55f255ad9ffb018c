from hypothesis import given
from hypothesis import strategies as st

from tailrace.log.state import STATE_BYTES, State, pack_state, unpack_state

numbers = st.integers(0, 2**63)
states = st.builds(
    State,
    head=numbers,
    last_index=numbers,
    horizon=numbers,
    active_index=numbers,
    synced_bytes=numbers,
    time_us=numbers,
)


@given(states)
def test_a_state_reads_back_as_it_was_packed(state):
    assert unpack_state(pack_state(state)) == state


@given(st.binary(max_size=80))
def test_any_other_bytes_are_no_state(data):
    assert unpack_state(data) is None


def test_every_flipped_bit_and_every_other_length_is_noticed():
    packed = pack_state(State(head=1, last_index=2, horizon=3, active_index=4, synced_bytes=5, time_us=6))
    assert len(packed) == STATE_BYTES
    for bit in range(len(packed) * 8):
        damaged = bytearray(packed)
        damaged[bit // 8] ^= 1 << bit % 8
        assert unpack_state(bytes(damaged)) is None
    for size in range(len(packed)):
        assert unpack_state(packed[:size]) is None
    assert unpack_state(packed + b"\0") is None
