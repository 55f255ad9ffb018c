"""The compiled helper takes rows exactly as the pure way does: equal keys, images and operations, equal ends."""

import struct

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tailrace.model.errors import SourceStateError
from tailrace.model.number import Position, SchemaId
from tailrace.source.postgres import transactions
from tailrace.source.postgres.frame import compiled, pack_data, payload_at, whole_end
from tailrace.source.postgres.pgoutput import UNCHANGED
from tailrace.source.postgres.replication_message import DATA_BEGIN
from tailrace.source.postgres.table_shape import RelationFacts, schema_of, shape_of
from tailrace.source.postgres.transactions import Learnt, PartLimits, Transactions
from tailrace.source.postgres.type_info import TypeInfo

pytestmark = pytest.mark.skipif(compiled is None, reason="the compiled helper was not built, or is switched off")

NAMES = [
    "bool",
    "int8",
    "float8",
    "numeric",
    "text",
    "bytea",
    "jsonb",
    "timestamptz",
    "uuid",
    "interval",
    "inet",
    "bit",
]
TYPES = {oid: TypeInfo(oid, name, "b", name) for oid, name in enumerate(NAMES, 1)} | {
    100: TypeInfo(100, "text[]", "b", "_text", element=5),
    101: TypeInfo(101, "hstore", "b", "hstore"),
    102: TypeInfo(102, "geometry", "b", "geometry", extension="postgis"),
}
any_text = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=30).map(str.encode)
hexadecimal = st.binary(max_size=20).map(lambda data: data.hex().encode())
digits = st.integers(-(2**70), 2**70).map(lambda number: str(number).encode())
TEXTS = {
    1: st.sampled_from([b"t", b"f"]),
    2: digits,
    3: st.floats().map(lambda number: repr(number).encode())
    | digits
    | st.sampled_from([b"NaN", b"-Infinity", b"1e+20"]),
    4: st.decimals().map(lambda number: str(number).encode()),
    6: hexadecimal.map(lambda data: b"\\x" + data),
    100: st.lists(st.integers(0, 9), max_size=4).map(lambda items: b"{%b}" % b",".join(b"%d" % one for one in items)),
    102: hexadecimal,
}


def text_of(oid):
    # A database with the encoding SQL_ASCII holds any bytes.
    loose = (
        any_text | st.binary(max_size=30) if oid in {5, 7, 101} else st.sampled_from([b"2024-01-01", b"0101", b"a:b"])
    )
    return TEXTS.get(oid, loose)


def packed(cells):
    sent = [
        b"n" if cell is None else b"u" if cell is UNCHANGED else b"t" + struct.pack(">I", len(cell)) + cell
        for cell in cells
    ]
    return struct.pack(">h", len(cells)) + b"".join(sent)


@st.composite
def streams(draw):
    """Return the messages of a commit: a description of a table, and changes of it."""
    oids = draw(st.lists(st.sampled_from(sorted(TYPES)), min_size=1, max_size=6))
    key = draw(st.sets(st.integers(0, len(oids) - 1)))
    identity = draw(st.sampled_from("dfin"))
    name = draw(st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=4))
    columns = b"".join(
        bytes([at in key or identity == "f"]) + f"{name}%{at}".encode() + b"\0" + struct.pack(">Ii", oid, -1)
        for at, oid in enumerate(oids)
    )
    relation = b"R" + struct.pack(">I", 9) + b"public\0t\0" + identity.encode() + struct.pack(">h", len(oids)) + columns
    cells = st.tuples(*(st.none() | st.just(UNCHANGED) | text_of(oid) for oid in oids)).map(packed)
    head = struct.pack(">I", 9)
    old = st.tuples(st.sampled_from([b"K", b"O"]), cells).map(b"".join)
    inserts = cells.map(lambda new: b"I" + head + b"N" + new)
    updates = st.tuples(st.just(b"") | old, cells).map(lambda pair: b"U" + head + pair[0] + b"N" + pair[1])
    deletes = old.map(lambda row: b"D" + head + row)
    changes = draw(st.lists(inserts | updates | deletes, min_size=1, max_size=12))
    names = [f"{name}%{at}" for at in range(len(oids))]
    return relation, tuple(names[at] for at in sorted(key)), changes


def made_of(messages, primary_key, limits=None, *, use):
    """Return drafts, and where they were cut."""

    def learn(relation, _):
        facts = RelationFacts(
            TYPES, [TYPES[one.type_oid].name for one in relation.columns], {}, primary_key=primary_key
        )
        return Learnt(shape_of(schema_of("app", relation, facts), SchemaId(3), relation, facts), news=True)

    taken = []
    made = Transactions(learn, lambda lsn: Position(str(lsn)), limits, on_parts=lambda: take())

    def take():
        taken.extend(made.drafts)
        made.drafts.clear()

    frames, at = b"".join(map(pack_data, messages)), 0
    with pytest.MonkeyPatch.context() as patch:
        if not use:
            patch.setattr(transactions, "compiled", None)
        while at < len(frames):
            at = made.feed_rows(frames, at)
            if at < len(frames):
                payload, at = payload_at(frames, at)
                made.feed(payload[DATA_BEGIN:])
    take()
    made.close()
    return taken


def whole_commit(relation, changes):
    return [b"B" + struct.pack(">QqI", 1, 0, 7), relation, *changes, b"C" + struct.pack(">BQQq", 0, 1, 2, 0)]


def numbered(message, xid):
    return message[:1] + struct.pack(">I", xid) + message[1:]


@given(streams(), st.none() | st.builds(PartLimits, st.integers(1, 5), st.integers(1, 300)))
def test_both_ways_give_equal_changes(stream, limits):
    relation, key, changes = stream
    messages = whole_commit(relation, changes)
    pure = made_of(messages, key, limits, use=False)
    assert made_of(messages, key, limits, use=True) == pure


@given(streams(), st.integers(7, 9))
def test_both_ways_give_equal_changes_of_streamed_transactions(stream, aborted):
    relation, key, changes = stream
    many = [numbered(message, 7 + at % 3) for at, message in enumerate(changes)]
    begin, end = b"S" + struct.pack(">IB", 7, 1), b"c" + struct.pack(">IBQQq", 7, 0, 1, 2, 0)
    abort = b"A" + struct.pack(">II", 7, aborted) if aborted != 7 else b"O" + bytes(8) + b"x\0"
    messages = [begin, numbered(relation, 7), *many, b"E", abort, end]
    assert made_of(messages, key, use=True) == made_of(messages, key, use=False)


@given(streams(), st.data())
def test_what_is_cut_off_or_changed_is_refused_or_taken_alike(stream, data):
    relation, key, changes = stream
    at = data.draw(st.integers(0, len(changes) - 1))
    broken = bytearray(changes[at][: data.draw(st.integers(1, len(changes[at])))])
    place = data.draw(st.integers(0, len(broken) - 1))
    broken[place] = data.draw(st.integers(0, 255))
    messages = whole_commit(relation, [*changes[:at], bytes(broken), *changes[at + 1 :]])
    outcomes = []
    for use in (False, True):
        try:
            outcomes.append(made_of(messages, key, use=use))
        except (SourceStateError, ValueError, ArithmeticError) as error:
            outcomes.append((type(error), str(error)))
    assert outcomes[0] == outcomes[1]


@given(any_text | st.binary(max_size=40))
@example(bytes(range(1, 128)))
@example("é€𝄞".encode() * 5)
@example(b"\xed\xa0\x80")
@example(b"\xf4\x90\x80\x80")
@example(b"\xc0\xaf")
@example(b'12345678"\\\x1f\x7f')
def test_texts_are_escaped_alike(text):
    relation = (
        b"R" + struct.pack(">I", 9) + b"public\0t\0d" + struct.pack(">h", 1) + b"\1v\0" + struct.pack(">Ii", 5, -1)
    )
    first = b"I" + struct.pack(">I", 9) + b"N" + packed([b"x"])
    messages = whole_commit(relation, [first, b"I" + struct.pack(">I", 9) + b"N" + packed([text])])
    assert made_of(messages, ("v",), use=True) == made_of(messages, ("v",), use=False)


def test_rows_are_really_taken_by_the_helper(monkeypatch):
    relation = (
        b"R" + struct.pack(">I", 9) + b"public\0t\0d" + struct.pack(">h", 1) + b"\1v\0" + struct.pack(">Ii", 2, -1)
    )
    rows = [b"I" + struct.pack(">I", 9) + b"N" + packed([b"%d" % n]) for n in range(50)]
    seen = []
    decode = transactions.decode
    monkeypatch.setattr(transactions, "decode", lambda data, **more: seen.append(data[:1]) or decode(data, **more))
    (draft,) = made_of(whole_commit(relation, rows), ("v",), use=True)
    assert len(draft) == 51
    assert seen == [b"B", b"R", b"I", b"C"]


@given(
    st.lists(st.binary(max_size=20), max_size=5),
    st.integers(0, 40),
    st.sampled_from([b"", b"Z\0\0\0\5I", b"d\0\0\0\1"]),
)
def test_whole_frames_end_alike(messages, cut, behind):
    data = b"".join(map(pack_data, messages)) + behind
    end = max(0, len(data) - cut)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tailrace.source.postgres.frame.compiled", None)
        pure = whole_end(data, 0, end)
    assert whole_end(data, 0, end) == pure
