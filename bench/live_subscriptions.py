"""A hundred thousand live subscriptions: what a change costs that does not concern them, and what memory they take.

The whole path is measured: the service, the task that evaluates changes for everybody, and feeds that wait. Each
subscription asks for one key of its own. The changes concern the first hundred of them, in both services alike.
"""

import asyncio
import gc
import random
import resource
import sys
import tempfile
import time
from pathlib import Path

import msgspec
import uvloop

from tailrace.cli.process import prepare_process
from tailrace.clock import SystemClock
from tailrace.meta.store import MetaStore
from tailrace.model.commit import Draft
from tailrace.model.number import Position, SchemaId
from tailrace.model.op import Op
from tailrace.model.start import Latest
from tailrace.model.subscription import FilterOptions, Format, Include, SubscribeRequest, Subscription, TableTarget
from tailrace.model.table import Column, Kind, TableName, TableSchema
from tailrace.subscription.feed import Feed
from tailrace.subscription.service import ServiceOptions, SubscriptionService
from tailrace.testing.log import MemoryLog

FEW, MANY = 100, 100_000
TOGETHER = 1_000
CHANGES = 4096
ROUNDS = 40
DEADLINE_S = 30.0
COST_RATIO_MAX = 2.0
BYTES_MAX = 2048

SCHEMA = TableSchema(
    TableName("app", "orders"),
    1,
    (Column("id", Kind.I64, "INTEGER"), Column("note", Kind.STR, "TEXT")),
    ("id",),
)


class World:
    """A service with this many live subscriptions."""

    def __init__(self, log: MemoryLog, service: SubscriptionService) -> None:
        self.log = log
        self.service = service
        self.feeds: list[Feed] = []

    async def grow(self, count: int) -> None:
        """Subscribe to this many keys and have a feed wait for each."""
        for first in range(0, count, TOGETHER):
            keys = range(first, min(first + TOGETHER, count))
            made = await asyncio.gather(*(self._subscribe(key) for key in keys))
            self.feeds += [self.service.feed(one.id, Latest()).__enter__() for one in made]  # for good
            await asyncio.gather(*(feed.next(0.001) for feed in self.feeds[first:]))

    async def _subscribe(self, key: int) -> Subscription:
        return await self.service.subscribe(
            SubscribeRequest(
                TableTarget((SCHEMA.table,)),
                filter=FilterOptions((Op.INSERT, Op.UPDATE, Op.DELETE), key=({"t": "i64", "v": key},)),
                include=Include(after=True),
                format=Format.PLAIN_JSON,
            )
        )

    async def microseconds(self, draft: Draft) -> float:
        """Append changes; return what each takes until all whom they concern have them."""
        waiting = asyncio.gather(*(feed.next(DEADLINE_S) for feed in self.feeds[:FEW]))
        await asyncio.sleep(0)
        await self.log.append([draft])  # in memory, without a pause: nobody has seen anything yet
        begin_s = time.perf_counter()
        batches = await waiting
        first, batch = self.feeds[0], batches[0]
        while batch.chunk.last < self.log.head:  # the last change is for the first of them
            first.advance(batch.chunk.last)
            batch = await first.next(DEADLINE_S)
        seconds = time.perf_counter() - begin_s
        assert None not in batches
        for feed in self.feeds[:FEW]:
            feed.advance(self.log.head)
        return seconds / CHANGES * 1e6


async def world(directory: Path, name: str, group: asyncio.TaskGroup) -> World:
    log = MemoryLog()
    await log.put_schema(SCHEMA)
    store = await MetaStore.open(f"sqlite:///{directory / name}", SystemClock())
    service = await SubscriptionService.open({"app": log}, store, ServiceOptions())
    group.create_task(service.run())
    return World(log, service)


def changes() -> Draft:
    """Return changes of which one in sixteen concerns one of the first subscriptions, each of them at least once."""
    chance = random.Random(3)
    made = Draft(Position("p"), time.time_ns() // 1000)
    for place in range(CHANGES):
        key = chance.randrange(FEW) if place % 16 == 0 else 10**9 + place
        if place < FEW:
            key = place
        elif place == CHANGES - 1:
            key = 0
        image = msgspec.json.encode({"id": key, "note": "n" * 100})
        made.add(Op.UPDATE, SchemaId(1), b"[%d]" % key, before=image, after=image)
    return made


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def report(name: str, measured: float, bar: float, detail: str) -> bool:
    good = measured <= bar
    print(f"{name}: {measured:.2f} (bar {bar:.2f}) {'PASS' if good else 'MISS'}  {detail}", flush=True)
    return good


async def measure(directory: Path) -> bool:
    async with asyncio.TaskGroup() as group:
        few = await world(directory, "few", group)
        await few.grow(FEW)
        many = await world(directory, "many", group)
        await many.grow(TOGETHER)
        gc.collect()
        begin_bytes = resident_bytes()
        begin_s = time.perf_counter()
        await many.grow(MANY)
        grown_s = time.perf_counter() - begin_s
        gc.collect()
        size_bytes = (resident_bytes() - begin_bytes) / MANY
        draft, times = changes(), ([], [])
        for _ in range(ROUNDS):
            times[0].append(await few.microseconds(draft))
            times[1].append(await many.microseconds(draft))
        for one in (few, many):
            await one.log.close()
    one, other = min(times[0]), min(times[1])
    detail = f"{one:.2f} and {other:.2f} µs a change; {MANY / grown_s:,.0f} subscriptions made and opened a second"
    good = report(f"{MANY} live subscriptions over {FEW}, cost of a change", other / one, COST_RATIO_MAX, detail)
    detail = "resident bytes a live subscription, without a connection"
    return good & report(f"{MANY} live subscriptions, memory of each", size_bytes, BYTES_MAX, detail)


def main() -> int:
    prepare_process()  # as a server does
    with tempfile.TemporaryDirectory() as name:
        good = uvloop.run(measure(Path(name)))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
