"""Facts about resume tokens."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.delivery.grpc.proto import coordinode_cdc_pb2 as proto
from tailrace.interface.coordinode.event import segment_token
from tailrace.interface.coordinode.token import MERGED, ResumeToken, encode_token, index_of, merged_token, token_of
from tailrace.model.errors import InvalidRequestError

unsigned = st.integers(0, 2**64 - 1)


@given(st.integers(0, 2**32 - 1), unsigned, unsigned)
def test_a_token_survives_the_wire(shard, segment, entries):
    token = ResumeToken(shard, segment, entries)
    assert token_of(proto.ResumeToken.FromString(encode_token(token))) == token


@pytest.mark.parametrize(
    ("token", "index"),
    [
        (ResumeToken(0, 1, 0), 1),
        (ResumeToken(0, 1, 5), 6),
        (ResumeToken(0, 0, 7), 7),
        (ResumeToken(0, 2**64 - 1, 0), 2**64 - 1),
    ],
    ids=str,
)
def test_a_token_stands_for_the_sum(token, index):
    assert index_of(token, 0) == index


@pytest.mark.parametrize(
    ("token", "reason"),
    [
        (ResumeToken(2, 1, 0), "resume token is for shard 2, this stream serves shard 0"),
        (ResumeToken(MERGED, 1, 0), "this stream serves shard 0"),
        (ResumeToken(0, 2**64 - 1, 1), "exceeds 64 bits"),
        (ResumeToken(0, 2**63, 2**63), "exceeds 64 bits"),
    ],
    ids=str,
)
def test_a_token_of_another_shard_or_no_place_is_refused(token, reason):
    with pytest.raises(InvalidRequestError, match=reason):
        index_of(token, 0)


@given(st.lists(st.integers(1, 1000), unique=True, max_size=8).map(sorted), st.integers(1, 1200))
def test_a_position_names_the_segment_of_the_commit_before_it_and_sums_to_the_next(segments, following):
    token = segment_token(4, segments, following)
    assert index_of(token, 4) == following
    if segments and following > segments[0]:
        assert token.segment in segments
        assert token.segment < following
        assert all(not token.segment < other < following for other in segments)


@given(unsigned, st.integers(0, 8), unsigned, st.integers(0, 8))
def test_merged_tokens_are_ordered_as_events_are(hlc, shard, other_hlc, other_shard):
    one, other = merged_token(hlc, shard + 1), merged_token(other_hlc, other_shard + 1)
    assert ((hlc, shard) < (other_hlc, other_shard)) == ((one.segment, one.entries) < (other.segment, other.entries))
