"""The compiled helper finds and copies what Arrow's functions would, and follows nothing out of its frame."""

import struct

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.log import find
from tailrace.log.batch import encode_drafts
from tailrace.log.find import Finder, joined
from tailrace.model.chunk import ENVELOPE
from tailrace.model.commit import Draft
from tailrace.model.number import Index, Offset, Position, SchemaId
from tailrace.model.op import Op
from tailrace.model.wanted import AnyKey, KeyWithin, OneOfKeys, Wanted
from wanting import changes, passes, wanteds

pytestmark = pytest.mark.skipif(find.compiled is None, reason="the compiled helper was not built")

OPS = frozenset(map(int, Op))
images = st.none() | st.binary(max_size=12)
rows = st.lists(st.tuples(changes, images, images), min_size=1, max_size=12)
commits = st.lists(st.tuples(rows, st.booleans(), st.text(max_size=5)), min_size=1, max_size=4)


def batch_of(given_commits, first: int) -> pa.RecordBatch:
    drafts = []
    for number, (changed, migration, position) in enumerate(given_commits):
        made = Draft(Position(position), 1000 + number, 7 * number)
        made.migration = migration
        for (op, schema, key), before, after in changed:
            made.add(op, SchemaId(schema), key, before=before, after=after)
        drafts.append(made)
    return encode_drafts(drafts, Offset(first), Index(first), first << 20)


def block_of(batches: list[pa.RecordBatch]) -> tuple[bytes, list[tuple[int, int]]]:
    """Return the payloads of frames with something between them, and where they are."""
    data, frames = b"", []
    for batch in batches:
        payload = bytes(batch.serialize())
        frames.append((len(data) + 48, len(payload)))
        data += bytes(48) + payload
    return data, frames


def found_in(wanted: Wanted, batches: list[pa.RecordBatch], limit: int = 1 << 20):
    finder = Finder.of(wanted)
    assert finder is not None
    return finder.find(*block_of(batches), limit)


@given(st.lists(commits, min_size=1, max_size=3), wanteds)
def test_what_is_wanted_is_found_and_copied_whole(frames, wanted):
    batches, first = [], 1
    for each in frames:
        batches.append(batch_of(each, first))
        first += batches[-1].num_rows
    found = found_in(wanted, batches)
    assert found is not None
    everything = pa.Table.from_batches(batches)
    given_rows = [change for each in frames for changed, _, _ in each for change, _, _ in changed]
    expected = [row for row, change in enumerate(given_rows) if passes(wanted, change)]
    count, newest, first_offset, last_offset, packed = found
    assert (count, first_offset, last_offset) == (len(expected), 1, len(given_rows))
    assert newest == max(schema for _, schema, _ in given_rows)
    if expected:
        made = joined([packed])
        made.validate(full=True)
        assert pa.Table.from_batches([made]) == everything.take(pa.array(expected, pa.int64())).combine_chunks()
    else:
        assert packed == b""


def many(count: int) -> pa.RecordBatch:
    keyed = [((Op.INSERT, 1 + number % 2, b"[%d]" % number), None, b"x" * (number % 50)) for number in range(count)]
    return batch_of([(keyed, False, "p")], 1)


def test_many_keys_are_found_by_length_and_bytes():
    keys = frozenset(b"[%d]" % number for number in range(0, 20_000, 7)) | {b"", b"[", b"[" + b"9" * 70 + b"]"}
    found = found_in(Wanted({SchemaId(1): OneOfKeys(keys)}, OPS, 2), [many(5000)])
    assert found is not None
    assert joined([found[4]]).column("key").to_pylist() == [b"[%d]" % number for number in range(0, 5000, 14)]


def test_bounds_of_keys_may_be_as_large_as_any_number():
    found = found_in(Wanted({SchemaId(1): KeyWithin(-(2**70), 2**70)}, OPS, 2), [many(100)])
    assert found is not None
    assert found[0] == 50


def test_parts_are_joined_in_their_order():
    wanted = Wanted({SchemaId(2): AnyKey()}, OPS, 2)
    batch = many(3000)
    parts = [found_in(wanted, [batch.slice(begin, 1000)])[4] for begin in (0, 1000, 2000)]
    made = joined(parts)
    made.validate(full=True)
    assert made == batch.take(pa.array(range(1, 3000, 2), pa.int64()))


def test_more_than_the_limit_is_not_copied():
    wanted = Wanted({SchemaId(2): AnyKey()}, OPS, 2)
    assert found_in(wanted, [many(100)], 50)[0] == 50
    count, *_, packed = found_in(wanted, [many(100)], 49)
    assert (count, packed) == (50, None)


def test_what_it_cannot_look_for_is_left_to_arrow():
    assert Finder.of(Wanted({SchemaId(1): AnyKey()}, OPS, 1 << 20)) is None
    tests = {SchemaId(number): KeyWithin(number, number) for number in range(1, 202)}
    assert Finder.of(Wanted(tests, OPS, 300)) is None
    del tests[SchemaId(201)]
    assert Finder.of(Wanted(tests, OPS, 300)) is not None


@pytest.mark.parametrize("name", ["hlc", "migration"])
def test_frames_of_older_versions_are_left_to_arrow(name):
    batch = many(10)
    place = ENVELOPE.get_field_index(name)
    older = batch.set_column(place, ENVELOPE.field(place), pa.nulls(10, ENVELOPE.field(place).type))
    assert found_in(Wanted({SchemaId(1): AnyKey()}, OPS, 2), [older]) is None


def test_payloads_that_are_cut_or_lie_elsewhere_are_refused():
    finder = Finder.of(Wanted({SchemaId(1): AnyKey()}, OPS, 2))
    assert finder is not None
    data, [(place, size)] = block_of([many(10)])
    for frames in ([(place, size - 8)], [(place, 100)], [(place + 8, size)], [(-8, size)], [(place, -1)], []):
        assert finder.find(data, frames, 100) is None


@given(st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 255)), min_size=1, max_size=4), wanteds)
def test_damage_that_no_checksum_caught_leads_nowhere(damages, wanted):
    """A checksum stands before this; still, no byte outside of the frame is ever read."""
    finder = Finder.of(wanted)
    assert finder is not None
    data, frames = block_of([many(20)])
    harmed = bytearray(data)
    for place, value in damages:
        harmed[place % len(data)] = value
    found = finder.find(bytes(harmed), frames, 1000)
    if found is not None and found[4]:
        assert joined([found[4]]).num_rows == found[0]


@pytest.mark.parametrize("number", [-1, 2**31, 2**62, -(2**63)])
def test_each_number_of_the_description_is_checked(number):
    finder = Finder.of(Wanted({SchemaId(1): OneOfKeys(frozenset({b"[2]"})), SchemaId(2): AnyKey()}, OPS, 2))
    assert finder is not None
    data, frames = block_of([many(20)])
    place, _ = frames[0]
    description = 8 + struct.unpack_from("<i", data, place + 4)[0]
    refused = 0
    for at in range(place, place + description, 8):
        harmed = bytearray(data)
        struct.pack_into("<q", harmed, at, number)
        refused += finder.find(bytes(harmed), frames, 1000) is None
    assert refused > 60
