"""A truncation on its way from a source through the log to subscribers. SQLite has none: the source is a script."""

import asyncio

import pytest

from feeding import TIME_US, image_of
from tailrace.capture import CaptureState, Pump
from tailrace.clock import SystemClock
from tailrace.log.log import Log
from tailrace.log.options import LogOptions
from tailrace.model.commit import Draft
from tailrace.model.op import Op
from tailrace.testing.files import MemoryFiles
from tailrace.testing.source import ScriptedSource
from web import until, web


def script(schema):
    """Return commits: two rows, a truncation, and a row after it."""
    first, second, third = (Draft(f"p{number}", TIME_US + number) for number in range(3))
    for key in (1, 2):
        first.add(Op.INSERT, schema, b"[%d]" % key, after=image_of(key, "a"))
    second.truncate(schema)
    third.add(Op.INSERT, schema, b"[1]", after=image_of(1, "b"))
    return [first, second, third]


async def captured(world):
    pump = Pump(ScriptedSource("app", script(world.schema_id)), world.log, CaptureState())
    await pump.open()
    running = asyncio.create_task(pump.run())
    try:
        await until(lambda: world.log.head == 4, "the log has all changes")
    finally:
        running.cancel()


async def subscribed(world, **options):
    answer = await world.call("cdc.subscribe_table", db="app", table="users", format="plain_json", **options)
    return answer["sub_id"]


@pytest.fixture
async def log():
    log = await Log.open(MemoryFiles(), LogOptions(), SystemClock())
    yield log
    await log.close()


async def test_a_truncation_comes_by_poll_and_stream_to_whoever_wants_deletions(log):
    async with web(log=log) as world:
        every = await subscribed(world)
        narrow = await subscribed(world, ops=["delete"], where="id = 99")
        inserts = await subscribed(world, ops=["insert"])
        only = await subscribed(world, ops=["truncate"])
        await captured(world)
        found = {}
        for sub_id in (every, narrow, inserts, only):
            polled = await world.call("cdc.poll", sub_id=sub_id, from_offset=0, limit=10)
            found[sub_id] = [(event["seq"], event["op"], event["pk"]) for event in polled["events"]]
        truncation = (3, "truncate", [])
        assert found[every] == [(1, "insert", [1]), (2, "insert", [2]), truncation, (4, "insert", [1])]
        assert found[narrow] == found[only] == [truncation]
        assert found[inserts] == [(1, "insert", [1]), (2, "insert", [2]), (4, "insert", [1])]
        async with world.socket(f"/{narrow}?from_offset=0") as socket:
            frame = await socket.record()
        assert (frame["id"], frame["event"]) == (3, "truncate")
        assert frame["data"] == {
            "seq": 3,
            "db": "app",
            "table": "users",
            "op": "truncate",
            "pk": [],
            "commit_ts_ms": (TIME_US + 1) // 1000,
            "lsn": 3,
        }
