"""Rows that a source sends in part, on their way through the log to subscribers and sinks. The source is a script."""

import asyncio
import json

import pyarrow as pa
import pytest

from feeding import TIME_US
from sink_places import rows_of
from tailrace.capture import CaptureState, Pump
from tailrace.clock import SystemClock
from tailrace.delivery.grpc.proto.sochdb_pb2 import SubscribeEvent
from tailrace.delivery.view import View
from tailrace.interface.sochdb.event import SOCHDB, encode_events
from tailrace.log.log import Log
from tailrace.log.options import LogOptions
from tailrace.model.chunk import Chunk
from tailrace.model.commit import Draft
from tailrace.model.op import Op
from tailrace.model.subscription import Format, Include
from tailrace.model.table import Column, Kind, TableName, TableSchema
from tailrace.pipeline.change_rows import table_changes
from tailrace.pipeline.sink.base import Batch, Mode
from tailrace.pipeline.sinks import sink_of
from tailrace.testing.files import MemoryFiles
from tailrace.testing.source import ScriptedSource
from web import until, web

PAGES = TableSchema(
    TableName("app", "pages"),
    1,
    (Column("id", Kind.I64, nullable=False), Column("title", Kind.STR), Column("body", Kind.STR)),
    ("id",),
)
STEPS = [
    (Op.INSERT, 1, None, {"id": 1, "title": "one", "body": "long 1"}),
    (Op.INSERT, 2, None, {"id": 2, "title": "two", "body": "long 2"}),
    (Op.UPDATE, 1, None, {"id": 1, "title": "first"}),
    (Op.UPDATE, 2, {"id": 2}, {"id": 2, "body": None}),
    (Op.UPDATE, 2, {"id": 2}, {"id": 2, "title": "second"}),
    (Op.UPDATE, 1, None, {"id": 1}),
]
ROWS = {(1,): {"id": 1, "title": "first", "body": "long 1"}, (2,): {"id": 2, "title": "second", "body": None}}


def script(schema):
    """Return a commit for each step."""
    drafts = []
    for number, (op, key, *images) in enumerate(STEPS):
        before, after = (image and json.dumps(image, separators=(",", ":")).encode() for image in images)
        drafts.append(Draft(f"p{number}", TIME_US + number))
        drafts[-1].add(op, schema, b"[%d]" % key, before=before, after=after)
    return drafts


async def captured(log):
    """Have the pump put all steps into a log."""
    schema = await log.put_schema(PAGES)
    pump = Pump(ScriptedSource("app", script(schema)), log, CaptureState())
    await pump.open()
    running = asyncio.create_task(pump.run())
    try:
        await until(lambda: log.head == len(STEPS), "the log has all changes")
    finally:
        running.cancel()


async def whole(log):
    """Return all changes of a log as one chunk."""
    batches, after = [], 0
    while chunk := await log.read(after):
        batches.append(chunk.batch.slice(after + 1 - chunk.first))
        schemas, after = chunk.schemas, chunk.last
    return Chunk(pa.concat_batches(batches), schemas)


@pytest.fixture
async def log():
    log = await Log.open(MemoryFiles(), LogOptions(), SystemClock())
    await log.put_schema(PAGES)
    yield log
    await log.close()


async def test_a_column_that_was_not_sent_is_missing_on_every_wire_and_never_null(log):
    async with web(log=log) as world:
        answer = await world.call(
            "cdc.subscribe_table", db="app", table="pages", format="plain_json", include={"after": True}
        )
        sub_id = answer["sub_id"]
        await captured(log)
        sent = [after for _, _, _, after in STEPS]
        polled = await world.call("cdc.poll", sub_id=sub_id, from_offset=0, limit=10)
        assert [event["after"] for event in polled["events"]] == sent
        async with world.socket(f"/{sub_id}?from_offset=0") as socket:
            assert [frame["data"]["after"] for frame in await socket.records(len(STEPS))] == sent
        marked = await world.call("cdc.poll", sub_id=sub_id, from_offset=0, limit=10, envelope="debezium")
        assert marked["events"][2]["after"] == {"id": 1, "title": "first", "body": "__debezium_unavailable_value"}
        assert marked["events"][3]["after"] == {"id": 2, "title": "__debezium_unavailable_value", "body": None}
    chunk = await whole(log)
    events = encode_events(chunk, range(len(chunk)), View(SOCHDB, Format.OBJECTS_JSON, Include(True, True))).events()
    grpc = [SubscribeEvent.FromString(event[5:]) for event in events]
    assert [json.loads(event.after_value) for event in grpc] == sent


@pytest.mark.parametrize("cut", range(len(STEPS)))
@pytest.mark.parametrize("mode", [Mode.CURRENT, Mode.HISTORY, Mode.APPEND])
@pytest.mark.parametrize("scheme", ["sqlite", "delta"])
async def test_a_column_that_was_not_sent_keeps_its_value_in_a_sink(log, tmp_path, scheme, mode, cut):
    await captured(log)
    chunk = await whole(log)
    url = {"sqlite": f"sqlite:///{tmp_path}/copy.db", "delta": f"delta://{tmp_path}/lake/{{table}}"}[scheme]
    sink = sink_of(url, mode, pipeline="copy")
    sink.open([PAGES])
    for number, part in enumerate(filter(len, (chunk.batch.slice(0, cut), chunk.batch.slice(cut)))):
        last = part.column("offset")[-1].as_py()
        sink.apply(Batch("copy", number, {"app": last}, table_changes([part], chunk.schemas)))
    found = {key: {name: row[name] for name in ("id", "title", "body")} for key, row in rows_of(sink, PAGES).items()}
    assert found == ROWS
    sink.close()
