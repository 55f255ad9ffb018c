"""Reading rows of a PostgreSQL database in tests, with capture beside it as in a server."""

import asyncio
import contextlib
from contextlib import aclosing

from tailrace.clock import SystemClock
from tailrace.metrics import Metrics
from tailrace.model.commit import CommitId, Progress
from tailrace.model.key_interval import KeyInterval
from tailrace.model.table import TableName
from tailrace.source.kind import SourceTools
from tailrace.source.reader import Reader
from tailrace.sources import resolve
from tailrace.testing.registry import MemoryRegistry

DEADLINE_S = 30
EVERYTHING = KeyInterval()


class Following:
    """The reading side of a database, and what capture has given so far."""

    def __init__(self, opened, registry):
        self.reads = opened.reads
        self.registry = registry
        self.drafts = []
        self.position = None
        self._moved = asyncio.Condition()

    async def follow(self, source):
        async with aclosing(source.commits(None)) as commits:
            async for group in commits:
                if isinstance(group, Progress):
                    self.position = group.position
                else:
                    self.drafts += group
                    self.position = group[-1].position
                async with self._moved:
                    self._moved.notify_all()

    async def catch_up(self):
        barrier = await self.reads.newest(DEADLINE_S)
        async with asyncio.timeout(DEADLINE_S), self._moved:
            await self._moved.wait_for(lambda: self.reads.reached(barrier, self.position))

    async def snapshot(self, name, schema=""):
        """Return the rows of a table by key, and what gave them."""
        taken = await self.reads.snapshot(TableName("app", name, schema), DEADLINE_S)
        rows = {}
        while (some := await taken.rows()) is not None:
            rows.update(zip(some.keys, some.images, strict=True))
        taken.close()
        return rows, taken

    async def pages(self, name, rows_max, within=EVERYTHING, schema=""):
        """Yield the pages of a table."""
        table = TableName("app", name, schema)
        while True:
            page = await self.reads.page(table, within, rows_max=rows_max, timeout_s=DEADLINE_S)
            yield page
            if page.end:
                return
            within = KeyInterval(page.last, within.through)

    def missing(self, read):
        """Return the commits that rows do not contain."""
        return [draft for draft in self.drafts if not read.contains(CommitId(draft.position, draft.txid))]


@contextlib.asynccontextmanager
async def reading(url, **options):
    """Capture and read a database for the length of a block."""
    opened = resolve(url, options).open("app", Reader("log"), SourceTools(SystemClock(), Metrics()))
    registry = MemoryRegistry()
    await opened.capture.open(registry)
    found = Following(opened, registry)
    following = asyncio.create_task(found.follow(opened.capture))
    try:
        yield found
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await opened.reads.close()
        await opened.capture.close()
