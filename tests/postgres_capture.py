"""Capturing a PostgreSQL database in tests: what came out of it, decoded."""

import asyncio
import contextlib
import json
from contextlib import aclosing

from tailrace.clock import SystemClock
from tailrace.metrics import Metrics
from tailrace.model.commit import Progress
from tailrace.model.image import decode_image
from tailrace.model.op import Op
from tailrace.source.kind import SourceTools
from tailrace.source.reader import Reader
from tailrace.sources import resolve
from tailrace.testing.registry import MemoryRegistry

DEADLINE_S = 30


class Database:
    """A database of its own on a shared server."""

    def __init__(self, server):
        self.server = server
        self.version = server.version
        self.name = server.new_database()
        self.url = server.sql_url(self.name)
        self._connections = contextlib.ExitStack()
        self.connection = self.connect()

    def connect(self):
        connection = self._connections.enter_context(contextlib.closing(self.server.connect(self.name)))
        connection.autocommit = True
        return connection

    def run(self, *statements):
        for statement in statements:
            self.connection.execute(statement)

    def rows(self, query):
        return self.connection.execute(query).fetchall()

    def leave(self):
        """Disconnect; the server is stopped by someone else."""
        self._connections.close()

    def close(self):
        self.leave()
        self.server.drop_database(self.name)


def source_of(url, *, reader="log", ephemeral=False, **options):
    """Return the capturing side of a database, as the registry makes it."""
    tools = SourceTools(SystemClock(), Metrics())
    return resolve(url, options).open("app", Reader(reader, ephemeral=ephemeral), tools).capture


class Captured:
    """A source that was opened, and what has come out of it so far."""

    def __init__(self, source, registry, after=None):
        self.source = source
        self.registry = registry
        self.after = after
        self.drafts = []
        self.progress = []

    async def changes(self, count):
        """Follow the source until so many changes have come since the last call; return them, decoded."""
        found = []
        async with asyncio.timeout(DEADLINE_S), aclosing(self.source.commits(self.after)) as commits:
            async for group in commits:
                if isinstance(group, Progress):
                    self.progress.append(group)
                    continue
                found += group
                self.drafts += group
                if sum(map(len, found)) >= count and not group[-1].more:
                    break
        self.after = found[-1].position
        await self.source.confirm(self.after)
        return [change for draft in found for change in self.decoded(draft)]

    def decoded(self, draft):
        """Return the changes of a draft: op, table, key, row before and after, each as a dict."""
        made = []
        for op, number, key, before, after in zip(
            draft.ops, draft.schemas, draft.keys, draft.befores, draft.afters, strict=True
        ):
            schema = self.registry.schemas[number]
            rows = [None if image is None else json.loads(image) for image in (before, after)]
            if op != Op.SCHEMA:
                rows = [None if image is None else decode_image(image, schema) for image in (before, after)]
            made.append((Op(op).word, schema.table.wire, json.loads(key), *rows))
        return made

    def schema(self, table):
        """Return the newest schema of a table."""
        return [one for one in self.registry.schemas.values() if one.table.wire == table][-1]


@contextlib.asynccontextmanager
async def captured(url, *, registry=None, after=None, **options):
    """Capture a database for the length of a block."""
    registry = registry or MemoryRegistry()
    source = source_of(url, **options)
    await source.open(registry)
    try:
        yield Captured(source, registry, after)
    finally:
        await source.close()
