"""Chunks, drafts and a service in memory, for tests of what reads the log."""

import asyncio
from contextlib import asynccontextmanager

import msgspec
import pyarrow as pa

from tailrace.access.principal import ANONYMOUS
from tailrace.clock import SystemClock
from tailrace.meta.store import MetaStore
from tailrace.model.chunk import ENVELOPE, Chunk
from tailrace.model.commit import Draft
from tailrace.model.op import Op
from tailrace.model.subscription import FilterOptions, Format, Include, SubscribeRequest, TableTarget
from tailrace.model.table import Column, Kind, TableName, TableSchema
from tailrace.subscription.access import Scopes
from tailrace.subscription.service import ServiceOptions, SubscriptionService
from tailrace.testing.log import MemoryLog

TIME_US = 1_790_000_000_123_456
ROW_OPS = (Op.INSERT, Op.UPDATE, Op.DELETE)


def schema_of(name, *, version=1, space="", columns=None, key=("id",)):
    """Return a schema version of a table of the source `app`."""
    columns = columns or (Column("id", Kind.I64), Column("name", Kind.STR))
    return TableSchema(TableName("app", name, space), version, columns, key)


def draft_of(rows):
    """Return a draft of (op, schema number) pairs with keys and images made up."""
    draft = Draft("p", TIME_US)
    for number, (op, schema) in enumerate(rows):
        if op is Op.TRUNCATE:
            draft.truncate(schema)
            continue
        image = b'{"id":%d,"name":"n%d"}' % (number, number)
        before = None if op in (Op.INSERT, Op.SCHEMA) else image
        after = None if op is Op.DELETE else image
        draft.add(op, schema, b"[%d]" % number, before=before, after=after)
    return draft


def image_of(key, name):
    """Return the image of a row of `users`."""
    return msgspec.json.encode({"id": key, "name": name})


def chunk_of(schemas, draft, first=1):
    """Return a chunk of one draft; schema numbers count from 1 in the order given."""
    count = len(draft)
    columns = [
        list(range(first, first + count)),
        [1] * count,
        [draft.commit_time_us] * count,
        [draft.txid] * count,
        draft.ops,
        draft.schemas,
        draft.keys,
        draft.befores,
        draft.afters,
        [None] * (count - 1) + [draft.position],
        [1] * count,
        [draft.migration] * count,
    ]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, ENVELOPE, strict=True)]
    return Chunk(pa.record_batch(arrays, schema=ENVELOPE), dict(enumerate(schemas, start=1)))


class Feeding:
    """A service over a log in memory with one table, `users`."""

    def __init__(self, log, service, schema_id):
        self.log = log
        self.service = service
        self.scoped = Scopes(service).of(ANONYMOUS)
        self.schema_id = schema_id

    async def append(self, *ops, schema=None):
        """Append one commit of changes with these ops."""
        await self.log.append([draft_of([(op, schema or self.schema_id) for op in ops])])

    async def write(self, *rows, schema=None, time_us=TIME_US):
        """Append one commit of rows given as op, key, and the name before and after; None is no image."""
        draft = Draft("p", time_us)
        for op, key, *names in rows:
            before, after = (None if name is None else image_of(key, name) for name in names)
            draft.add(op, schema or self.schema_id, b"[%d]" % key, before=before, after=after)
        await self.log.append([draft])

    @staticmethod
    def draft(schema_id, keys):
        """Return a commit of inserts with these keys and no images."""
        draft = Draft("p", TIME_US)
        for key in keys:
            draft.add(Op.INSERT, schema_id, key)
        return draft

    async def subscribe(self, ops=ROW_OPS, table="users", filters=None, **options):
        return await self.service.subscribe(
            SubscribeRequest(
                TableTarget((TableName("app", table),)),
                filter=FilterOptions(tuple(ops), **(filters or {})),
                include=Include(),
                format=Format.PLAIN_JSON,
                **options,
            )
        )


@asynccontextmanager
async def feeding(url="sqlite://", log=None, **options):
    """Run a service over a log in memory."""
    log = log or MemoryLog()
    schema_id = await log.put_schema(schema_of("users"))
    store = await MetaStore.open(url, SystemClock())
    try:
        service = await SubscriptionService.open({"app": log}, store, ServiceOptions(**options))
        async with asyncio.TaskGroup() as group:
            runner = group.create_task(service.run())
            try:
                yield Feeding(log, service, schema_id)
            finally:
                runner.cancel()
    finally:
        await store.close()
