"""Change streams over logs in memory, called without a server."""

import asyncio
from contextlib import asynccontextmanager, suppress

import msgspec

from tailrace.clock import SystemClock
from tailrace.delivery.grpc.proto import coordinode_cdc_pb2 as proto
from tailrace.delivery.grpc.proto import status_pb2
from tailrace.interface.coordinode.consumers import Consumers
from tailrace.interface.coordinode.meter import Meter
from tailrace.interface.coordinode.options import ChangeStreamOptions, ConsumerOptions, EdgeTable
from tailrace.interface.coordinode.service import ChangeStreamTools, change_stream_service
from tailrace.interface.coordinode.shard import StreamShard, Terms
from tailrace.log.hybrid import HybridClock
from tailrace.meta.consumer_store import ConsumerStore
from tailrace.meta.store import MetaStore
from tailrace.metrics import Metrics
from tailrace.model.commit import Draft
from tailrace.model.number import Index, Position
from tailrace.model.op import Op
from tailrace.model.table import Column, Kind, TableName, TableSchema
from tailrace.subscription.restrict import Restrictions
from tailrace.testing.call import MemoryCall
from tailrace.testing.log import MemoryLog

WAIT_S = 20
QUICK = ChangeStreamOptions(progress_s=0.01, consumer_progress_s=0.01)
COLUMNS = (Column("id", Kind.I64), Column("a", Kind.I64), Column("b", Kind.I64), Column("text", Kind.STR))
FIRST_TERM = ((Index(1), 1),)
EDGES = {"follows": EdgeTable("a", "b", type="FOLLOWS"), "likes": EdgeTable("a", "b", type="LIKES")}


class Streams:
    """The service over logs in memory; source `app` is shard 0, `two` is shard 1."""

    def __init__(self, store, logs, options, consumer_options, clock, terms):
        self.logs = logs
        self.metrics = Metrics()
        self.clock = clock
        self._store = ConsumerStore(store, clock)
        self._options = options
        self._consumer_options = consumer_options
        self.shards = {
            number: StreamShard(number, name, logs[name], Terms(terms), EDGES) for number, name in enumerate(logs)
        }
        self._schemas = {}
        self.consumers = None
        self.methods = {}

    async def start(self):
        """Begin, or begin again as after a restart."""
        kept = await self._store.consumers()
        self.consumers = Consumers(self.shards, self._store, kept, self._consumer_options, self.clock, self.metrics)
        tools = ChangeStreamTools(self.shards, self.consumers, Restrictions(), Meter(self.metrics), self._options)
        self.methods = change_stream_service(tools).methods

    async def commit(self, *tables, source="app", migration=False, text="x", time_us=0):
        """Append one commit with a row for each table, or for each (table, a, b)."""
        draft = Draft(Position("p"), time_us, migration=migration)
        for number, table in enumerate(tables):
            name, a, b = table if isinstance(table, tuple) else (table, number, number + 1)
            schema = await self._schema(source, name)
            image = msgspec.json.encode({"id": number, "a": a, "b": b, "text": text})
            draft.add(Op.INSERT, schema, b"[%d]" % number, after=image)
        await self.logs[source].append([draft])

    async def _schema(self, source, name):
        if (source, name) not in self._schemas:
            schema = TableSchema(TableName(source, name), 1, COLUMNS, ("id",))
            self._schemas[source, name] = await self.logs[source].put_schema(schema)
        return self._schemas[source, name]

    @asynccontextmanager
    async def stream(self, request=None, metadata=None, principal=None):
        """Run a streaming call until the block ends."""
        call = MemoryCall(metadata, **({} if principal is None else {"principal": principal}))
        request = proto.SubscribeRequest() if request is None else request
        data = request if isinstance(request, bytes) else request.SerializeToString()
        task = asyncio.create_task(self.methods["Subscribe"].stream(call, data))
        try:
            yield Streamed(call, task)
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await task

    async def unary(self, method, request, principal=None):
        """Call a unary method."""
        call = MemoryCall(**({} if principal is None else {"principal": principal}))
        return await self.methods[method].unary(call, request.SerializeToString())


class Streamed:
    """A call under way, read event by event."""

    def __init__(self, call, task):
        self.call = call
        self.task = task
        self._messages = call.messages()

    async def events(self, count):
        """Return the next events."""
        return [await self.event() for _ in range(count)]

    async def commits(self, count):
        """Return the next events that have operations: between any two, a stream may tell how far it has read."""
        found = []
        while len(found) < count:
            event = await self.event()
            if event.ops:
                found.append(event)
        return found

    async def event(self):
        """Return the next event; raise what ended the call instead."""
        following = asyncio.ensure_future(anext(self._messages))
        done, _ = await asyncio.wait({following, self.task}, timeout=WAIT_S, return_when=asyncio.FIRST_COMPLETED)
        assert done, "nothing came in time"
        if following not in done:
            following.cancel()
            with suppress(asyncio.CancelledError):
                await following
            self.task.result()
            raise AssertionError("the call ended well")
        return proto.ChangeEvent.FromString(following.result())

    async def begun(self):
        """Return the initial metadata; raise what ended the call instead."""
        begun = asyncio.ensure_future(self.call.begun())
        await asyncio.wait({begun, self.task}, timeout=WAIT_S, return_when=asyncio.FIRST_COMPLETED)
        if not begun.done():
            begun.cancel()
            self.task.result()
        return begun.result()

    async def end(self):
        """Return what the call ends with."""
        async with asyncio.timeout(WAIT_S):
            await asyncio.wait({self.task})
        return self.task.exception()


@asynccontextmanager
async def streams(
    tmp_path,
    *,
    sources=("app",),
    options=QUICK,
    consumer_options=ConsumerOptions(),  # noqa: B008
    clock=None,
    terms=FIRST_TERM,
):
    """Give the service over empty logs."""
    clock = clock or SystemClock()
    store = await MetaStore.open(f"sqlite:///{tmp_path}/meta.db", clock)
    hybrid = HybridClock()
    logs = {name: MemoryLog(hybrid) for name in sources}
    made = Streams(store, logs, options, consumer_options, clock, terms)
    await made.start()
    try:
        yield made
    finally:
        await store.close()


def error_info(error):
    """Return the reason and the metadata that a status carries in its details."""
    (detail,) = [value for name, value in error.trailing if name == "grpc-status-details-bin"]
    status = status_pb2.Status.FromString(detail)
    assert (status.code, status.message) == (error.code, error.message)
    (any_,) = status.details
    assert any_.type_url == "type.googleapis.com/google.rpc.ErrorInfo"
    info = status_pb2.ErrorInfo.FromString(any_.value)
    assert info.domain == "coordinode.sw.foundation"
    return info.reason, dict(info.metadata)


def token(segment, entries=0, shard=0):
    """Return a resume token."""
    return proto.ResumeToken(shard_id=shard, segment_id=segment, entry_offset=entries)


def next_index(position):
    """Return the index for which a position stands."""
    return position.segment_id + position.entry_offset
