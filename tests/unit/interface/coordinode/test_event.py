"""The bytes of events."""

from pathlib import Path

from change_streams import node
from tailrace.delivery.grpc.proto import coordinode_cdc_pb2 as proto
from tailrace.interface.coordinode.event import parts_of, progress_message
from tailrace.interface.coordinode.operation import Mapper
from tailrace.interface.coordinode.options import EdgeTable
from tailrace.interface.coordinode.shard import StreamShard, Terms
from tailrace.interface.coordinode.token import ResumeToken
from tailrace.interface.coordinode.window import Placing
from tailrace.log.hybrid import HybridClock
from tailrace.model.commit import Draft
from tailrace.model.op import Op
from tailrace.model.table import Column, Kind, TableName, TableSchema
from tailrace.testing.call import messages_of
from tailrace.testing.log import MemoryLog

GOLDEN = Path(__file__).parents[3] / "golden" / "coordinode" / "commits.bin"
USERS = TableSchema(TableName("app", "users"), 1, (Column("id", Kind.I64), Column("photo", Kind.BYTES)), ("id",))
NAMED = TableSchema(TableName("app", "named"), 1, (Column("name", Kind.STR),), ("name",))
FOLLOWS = TableSchema(TableName("app", "follows"), 1, (Column("a", Kind.I64), Column("b", Kind.I64)), ("a", "b"))


async def written():
    """Return the messages of two commits: every kind of operation, and one that moves data."""
    log = MemoryLog(HybridClock())
    for schema in (USERS, NAMED, FOLLOWS):
        await log.put_schema(schema)
    one, two = Draft("p", 1_700_000_000_123_456), Draft("p", 1_600_000_000_000_000, migration=True)
    one.add(Op.SCHEMA, 1, b"[]", after=b'{"ddl":"CREATE TABLE users(id INTEGER PRIMARY KEY, photo BLOB)"}')
    one.add(Op.INSERT, 1, b"[1]", after=b'{"id":1,"photo":"AP8="}')
    one.add(Op.UPDATE, 2, b'["ann"]', before=b'{"name":"ann"}', after=b'{"name":"ann"}')
    one.add(Op.INSERT, 3, b"[1,2]", after=b'{"a":1,"b":2}')
    two.add(Op.DELETE, 3, b"[1,2]", before=b'{"a":1,"b":2}')
    two.add(Op.DELETE, 1, b"[1]", before=b'{"id":1,"photo":null}')
    await log.append([one, two])
    shard = StreamShard(1, "app", log, Terms([(1, 4)]), {"follows": EdgeTable("a", "b", type="FOLLOWS")})
    placing = Placing(shard, 4_000_000, merged=False)
    parts = parts_of(await log.read(0), 0, Mapper(1, shard.edges))
    return b"".join(placing.events(part, log.segment_indexes) for part in parts)


async def test_the_same_bytes_are_sent():
    assert await written() == GOLDEN.read_bytes()


def test_the_bytes_are_messages_that_say_what_happened():
    one, two = map(proto.ChangeEvent.FromString, messages_of(GOLDEN.read_bytes()))
    assert (one.ts >> 18, one.term, one.log_index, one.shard_id, one.is_migration) == (
        1_700_000_000_123,
        4,
        1,
        1,
        False,
    )
    assert (two.ts, two.is_migration) == (one.ts + 1, True)
    assert [(op.type, op.partition) for op in one.ops] == [(1, 5), (1, 0), (1, 0), (3, 1), (3, 1), (1, 2)]
    assert [(op.type, op.partition) for op in two.ops] == [(3, 1), (3, 1), (2, 2), (2, 0)]
    assert node(one.ops[2].key)[2:] == ("named", ["ann"])
    assert two.position == proto.ResumeToken(shard_id=1, segment_id=1, entry_offset=2)


def test_a_progress_event_has_a_place_and_nothing_else():
    (message,) = messages_of(progress_message(2, 9, ResumeToken(2, 10, 0)))
    event = proto.ChangeEvent.FromString(message)
    assert event == proto.ChangeEvent(
        log_index=9, shard_id=2, position=proto.ResumeToken(shard_id=2, segment_id=10, entry_offset=0)
    )
