"""Messages put together as commits: whole ones, streamed ones, parts, and changes of every sort."""

import json
import struct
from typing import ClassVar

import pytest

from tailrace.model.errors import SourceStateError, SourceUnavailableError
from tailrace.model.image import NO_KEY
from tailrace.model.number import Position, SchemaId
from tailrace.model.op import Op
from tailrace.source.postgres.frame import pack_data, payload_at
from tailrace.source.postgres.pgoutput import UNCHANGED
from tailrace.source.postgres.replication_message import DATA_BEGIN
from tailrace.source.postgres.stream_spool import StreamSpool
from tailrace.source.postgres.table_shape import RelationFacts, schema_of, shape_of
from tailrace.source.postgres.transactions import Learnt, PartLimits, Transactions
from tailrace.source.postgres.type_info import TypeInfo

TYPES = {23: TypeInfo(23, "integer", "b", "int4"), 25: TypeInfo(25, "text", "b", "text")}


@pytest.fixture(autouse=True)
def closing(rows):
    """Let go of what is spooled when a test ends. All run with both ways to take rows."""
    yield
    while Server.all:
        Server.all.pop().made.close()


class Server:
    """Sends messages to `Transactions`, as a server would."""

    all: ClassVar = []

    def __init__(self, limits=None, spool_directory=None):
        self.all.append(self)
        self.learnt = []
        self.taken = []
        self.made = Transactions(
            self.learn, lambda lsn: Position(str(lsn)), limits, spool_directory, on_parts=self.take
        )

    def learn(self, relation, type_names):
        facts = RelationFacts(TYPES, [TYPES[one.type_oid].name for one in relation.columns], {}, primary_key=("id",))
        number = SchemaId(len(self.learnt) + 1)
        self.learnt.append(relation)
        return Learnt(shape_of(schema_of("app", relation, facts), number, relation, facts), news=len(self.learnt) > 1)

    def take(self):
        self.taken += self.made.drafts
        self.made.drafts.clear()

    def send(self, *messages):
        frames, at = b"".join(map(pack_data, messages)), 0
        while at < len(frames):
            at = self.made.feed_rows(frames, at)
            if at < len(frames):
                payload, at = payload_at(frames, at)
                self.made.feed(payload[DATA_BEGIN:])
        self.take()
        return self

    def changes(self):
        """Return op, key, row before and row after of all changes."""
        return [
            (Op(op).word, json.loads(key), before and json.loads(before), after and json.loads(after))
            for draft in self.taken
            for op, key, before, after in zip(draft.ops, draft.keys, draft.befores, draft.afters, strict=True)
        ]

    def keys(self):
        return [key[0] for op, key, *_ in self.changes() if op != "schema"]


def number(value):
    return struct.pack(">I", value)


def begin(lsn, xid=7):
    return b"B" + struct.pack(">QqI", lsn, 0, xid)


def commit(lsn):
    return b"C" + struct.pack(">BQQq", 0, lsn, lsn + 1, 0)


def relation(columns=("id", "v"), identity="d", oid=1, xid=0, key=("id",)):
    body = b"".join(
        bytes([name in key]) + name.encode() + b"\0" + struct.pack(">Ii", 23 if name == "id" else 25, -1)
        for name in columns
    )
    head = (number(xid) if xid else b"") + number(oid) + b"public\0t\0" + identity.encode()
    return b"R" + head + struct.pack(">h", len(columns)) + body


def row(cells):
    made = [
        b"n"
        if cell is None
        else b"u"
        if cell is UNCHANGED
        else b"t" + struct.pack(">i", len(str(cell))) + str(cell).encode()
        for cell in cells
    ]
    return struct.pack(">h", len(cells)) + b"".join(made)


def insert(*cells, oid=1, xid=0):
    return b"I" + (number(xid) if xid else b"") + number(oid) + b"N" + row(cells)


def update(new, old=None, kind=b"K"):
    return b"U" + number(1) + (b"" if old is None else kind + row(old)) + b"N" + row(new)


def delete(old, kind=b"K"):
    return b"D" + number(1) + kind + row(old)


def stream(xid, *messages):
    return [b"S" + number(xid) + b"\1", *messages, b"E"]


def stream_commit(xid, lsn):
    return b"c" + number(xid) + struct.pack(">BQQq", 0, lsn, lsn + 1, 0)


def abort(xid, subxid):
    return b"A" + number(xid) + number(subxid)


def test_a_commit_has_its_changes_position_and_number():
    server = Server().send(begin(10), relation(), insert(1, "a"), insert(2, None), commit(10))
    (draft,) = server.taken
    assert (draft.position, draft.txid, draft.commit_time_us) == ("11", 7, 946_684_800_000_000)
    assert server.changes() == [
        ("insert", [1], None, {"id": 1, "v": "a"}),
        ("insert", [2], None, {"id": 2, "v": None}),
    ]


def test_updates_have_the_key_before_and_are_a_deletion_and_an_insert_where_it_changes():
    server = Server().send(
        begin(1), relation(), update([1, "b"]), update([2, "b"], [1, None]), delete([2, None]), commit(1)
    )
    assert server.changes() == [
        ("update", [1], {"id": 1}, {"id": 1, "v": "b"}),
        ("delete", [1], {"id": 1}, None),
        ("insert", [2], None, {"id": 2, "v": "b"}),
        ("delete", [2], {"id": 2}, None),
    ]


def test_cells_that_were_not_sent_are_left_out_or_filled_from_the_whole_row_before():
    server = Server().send(begin(1), relation(), update([1, UNCHANGED]), commit(1))
    assert server.changes()[-1][3] == {"id": 1}
    server.send(begin(2), relation(identity="f", key=("id", "v")), update([1, UNCHANGED], [1, "big"], b"O"), commit(2))
    assert server.changes()[-1] == ("update", [1], {"id": 1, "v": "big"}, {"id": 1, "v": "big"})


def test_a_key_that_was_not_sent_is_that_of_the_row_before():
    server = Server().send(begin(1), relation(), update([UNCHANGED, "b"], [1, None]), commit(1))
    assert server.changes() == [("update", [1], {"id": 1}, {"id": 1, "v": "b"})]


def test_truncations_and_schema_changes_stand_in_their_place():
    server = Server().send(begin(1), relation(), insert(1, "a"), b"T" + struct.pack(">iBI", 1, 0, 1))
    server.send(relation(("id", "v", "w")), insert(2, "b", "c"), commit(1))
    ops = [op for op, *_ in server.changes()]
    assert ops == ["insert", "truncate", "schema", "insert"]
    draft = server.taken[0]
    assert (draft.keys[1], draft.keys[2], draft.schemas) == (NO_KEY, NO_KEY, [1, 1, 2, 2])


def test_a_transaction_without_changes_is_progress():
    server = Server().send(begin(10), commit(10))
    assert (server.taken, server.made.progress_lsn, server.made.in_transaction) == ([], 11, False)


@pytest.mark.parametrize("limits", [PartLimits(changes=2), PartLimits(size_bytes=30)])
def test_a_large_commit_comes_in_parts_none_of_them_empty(limits):
    server = Server(limits).send(begin(10), relation(), *(insert(n, "x") for n in range(4)), commit(10))
    assert [(draft.part, draft.more) for draft in server.taken] == [
        (n, n + 1 < len(server.taken)) for n in range(len(server.taken))
    ]
    assert len(server.taken) > 1
    assert all(map(len, server.taken))
    assert server.keys() == [0, 1, 2, 3]
    assert server.taken[-1].position == "11"


def test_streamed_transactions_come_when_they_are_committed_in_the_order_of_that():
    server = Server().send(*stream(7, relation(xid=7), insert(1, "a", xid=7)))
    server.send(*stream(8, relation(xid=8), insert(2, "b", xid=8)), *stream(7, insert(3, "c", xid=7)))
    assert server.taken == []
    server.send(begin(5, xid=9), relation(), insert(4, "d"), commit(5), stream_commit(8, 20))
    assert server.keys() == [4, 2]
    server.send(stream_commit(7, 30))
    assert server.keys() == [4, 2, 1, 3]
    assert [draft.position for draft in server.taken] == ["6", "21", "31"]
    assert [draft.txid for draft in server.taken] == [9, 8, 7]


def test_what_was_rolled_back_vanishes_and_its_descriptions_stay():
    server = Server().send(*stream(7, relation(xid=8), insert(1, "gone", xid=8), insert(2, "kept", xid=7)), abort(7, 8))
    server.send(*stream(9, relation(xid=9), insert(3, "gone", xid=9)), abort(9, 9), abort(5, 5))
    server.send(stream_commit(7, 20))
    assert server.keys() == [2]
    with pytest.raises(SourceStateError, match="had sent nothing"):
        server.send(stream_commit(9, 30))


def test_parts_of_a_streamed_commit_are_handed_over_while_it_is_read():
    server = Server(PartLimits(changes=10))
    server.send(*stream(7, relation(xid=7), *(insert(n, "x", xid=7) for n in range(35))), stream_commit(7, 20))
    assert [len(draft) for draft in server.taken] == [10, 10, 10, 5]
    assert server.keys() == list(range(35))


def test_a_description_inside_a_stream_does_not_hide_a_newer_one():
    server = Server().send(*stream(7, relation(xid=7), insert(1, "a", xid=7)))
    server.send(begin(5), relation(("id", "v", "w")), insert(2, "b", "c"), commit(5), stream_commit(7, 20))
    server.send(begin(30), insert(3, "d", "e"), commit(30))
    assert server.changes()[-1][3] == {"id": 3, "v": "d", "w": "e"}
    server.send(*stream(8, relation(xid=8), insert(4, "f", xid=8)), stream_commit(8, 40))
    server.send(begin(50), insert(5, "g"), commit(50))
    assert server.changes()[-1][3] == {"id": 5, "v": "g"}


@pytest.mark.parametrize(
    "messages",
    [
        [begin(1), begin(2)],
        [commit(1)],
        [insert(1, "a")],
        [begin(1), insert(1, "a")],
        [stream_commit(3, 4)],
        [begin(1), b"b" + struct.pack(">QQqI", 1, 2, 3, 4) + b"gid\0"],
        [*stream(1)[:1], b"I\0"],
    ],
)
def test_messages_in_a_wrong_place_are_a_typed_error(messages):
    with pytest.raises(SourceStateError):
        Server().send(*messages)


def test_a_spool_keeps_much_on_the_disk_and_says_when_that_refuses(tmp_path):
    spool = StreamSpool(str(tmp_path))
    large = [b"I" + number(n) + bytes([n]) * size for n, size in enumerate([300_000, 5, 3_000_000, 7, 9, 200_000])]
    for message in large:
        spool.add(pack_data(message))
    spool.aborted.add(3)
    found = []
    for frames in spool.blocks():
        at = 0
        while at < len(frames):
            payload, at = payload_at(frames, at)
            found.append(payload[DATA_BEGIN:])
    assert found == large
    assert [spool.skips(message) for message in large] == [False, False, False, True, False, False]
    assert not spool.skips(b"R" + number(3))
    spool.close()
    refusing = StreamSpool(str(tmp_path / "missing"))
    with pytest.raises(SourceUnavailableError, match="spool_directory"):
        refusing.add(b"x" * 2_000_000)
    refusing.close()
