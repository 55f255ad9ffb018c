"""Rows that a source sends in part, on their way through the log to subscribers and sinks. The source is a script."""

import asyncio
import json
import sqlite3

import grpc
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import change_streams
from fake_opensearch import FakeOpenSearch
from feeding import TIME_US
from pulling import Client
from running import Running
from serving import DEADLINE_S, wait_until
from sink_places import rows_of
from tailrace.capture import CaptureState, Pump
from tailrace.client.bulk_rows import BulkRowsClient
from tailrace.clock import SystemClock
from tailrace.delivery.grpc.proto import coordinode_cdc_pb2 as cdc
from tailrace.delivery.grpc.proto.sochdb_pb2 import SubscribeEvent
from tailrace.delivery.view import View
from tailrace.interface.sochdb.event import SOCHDB, encode_events
from tailrace.log.log import Log
from tailrace.log.options import LogOptions
from tailrace.message.shape import Shape, ShapeOptions
from tailrace.message.targets import target_of
from tailrace.meta.pipeline import Definition
from tailrace.model.chunk import Change, Chunk
from tailrace.model.commit import Draft
from tailrace.model.op import Op
from tailrace.model.subscription import Format, Include
from tailrace.model.table import Column, Kind, TableName, TableSchema
from tailrace.pipeline.change_rows import table_changes
from tailrace.pipeline.sink.base import Batch, Mode
from tailrace.pipeline.sink_thread import SinkThread
from tailrace.pipeline.sinks import sink_of
from tailrace.pipeline.verify import Verifier
from tailrace.sink_url import parse
from tailrace.sources import KINDS
from tailrace.testing.database import Before, ScriptedDatabase, ScriptedKind
from tailrace.testing.files import MemoryFiles
from tailrace.testing.reads import ScriptedReads
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


SINKS = [(scheme, mode) for scheme in ("sqlite", "delta") for mode in (Mode.CURRENT, Mode.HISTORY, Mode.APPEND)]
SINKS += [("parquet", Mode.APPEND), ("jsonl", Mode.APPEND)]


@pytest.mark.parametrize("cut", range(len(STEPS)))
@pytest.mark.parametrize(("scheme", "mode"), SINKS)
async def test_a_column_that_was_not_sent_keeps_its_value_in_a_sink(log, tmp_path, scheme, mode, cut):
    await captured(log)
    chunk = await whole(log)
    url = {
        "sqlite": f"sqlite:///{tmp_path}/copy.db",
        "delta": f"delta://{tmp_path}/lake/{{table}}",
        "parquet": f"parquet://{tmp_path}/files",
        "jsonl": f"jsonl://{tmp_path}/files",
    }[scheme]
    sink = sink_of(url, mode, pipeline="copy")
    sink.open([PAGES])
    for number, part in enumerate(filter(len, (chunk.batch.slice(0, cut), chunk.batch.slice(cut)))):
        last = part.column("offset")[-1].as_py()
        sink.apply(Batch("copy", number, {"app": last}, table_changes([part], chunk.schemas)))
    found = {key: {name: row[name] for name in ("id", "title", "body")} for key, row in rows_of(sink, PAGES).items()}
    assert found == ROWS
    sink.close()


def unsent_in(url, row):
    """Return what an appended change says that it lacks."""
    found = {place.suffix: place for place in url.glob("pipeline=*/batch=*/table=pages/*")}
    if ".parquet" in found:
        rows = pq.read_table(found[".parquet"], partitioning=None).to_pylist()
    else:
        rows = [json.loads(line) for line in found[".jsonl"].read_text().splitlines()]
    return rows[row]


@pytest.mark.parametrize("scheme", ["parquet", "jsonl"])
async def test_files_of_changes_tell_what_was_not_sent_from_null(log, tmp_path, scheme):
    await captured(log)
    chunk = await whole(log)
    sink = sink_of(f"{scheme}://{tmp_path}/files", Mode.APPEND, pipeline="copy")
    sink.open([PAGES])
    sink.apply(Batch("copy", 0, {"app": len(chunk)}, table_changes([chunk.batch], chunk.schemas)))
    sink.close()
    rows = {offset: unsent_in(tmp_path / "files", place) for place, offset in ((2, 3), (4, 4))}
    assert (rows[3]["body"], rows[3]["_tailrace_unchanged"]) == (None, '["body"]')
    assert (rows[4]["body"], rows[4]["_tailrace_unchanged"]) == (None, '["title"]')


@pytest.mark.parametrize("at_once", [1, 2, len(STEPS)])
async def test_a_search_engine_keeps_the_fields_that_were_not_sent(log, server_of_documents, at_once):
    await captured(log)
    changes = list(changes_of(await whole(log)))
    target = target_of(parse(f"opensearch+http://admin:admin@127.0.0.1:{server_of_documents.port}/{{table}}"), "s")
    target.open([PAGES])
    shape = Shape(ShapeOptions(envelope="row"))
    messages = [message for one in shape.shaped(changes) for message in one.messages]
    for _ in range(2):  # what is given again changes nothing
        for begin in range(0, len(messages), at_once):
            assert target.send(messages[begin : begin + at_once], b"") == []
        assert server_of_documents.sources("pages") == {str(key): row for (key,), row in ROWS.items()}
    target.close()


@pytest.fixture
def server_of_documents():
    fake = FakeOpenSearch().listen()
    yield fake
    fake.close()


def changes_of(chunk):
    """Yield the changes of a chunk."""
    for row in chunk.batch.to_pylist():
        yield Change(
            row["offset"],
            row["index"],
            row["commit_time_us"],
            row["txid"],
            Op(row["op"]),
            chunk.schemas[row["schema"]],
            row["key"],
            row["before"],
            row["after"],
        )


@pytest.fixture
def shop(monkeypatch):
    """A database that sends neither rows before nor the column `body` where it is not set."""
    kind = ScriptedKind({"shop": ScriptedDatabase(before=Before.NONE, unchanged=["body"])}, ScriptedReads)
    monkeypatch.setitem(KINDS, "scripted", lambda: kind)
    made = kind.databases["shop"]
    made.create("pages", {"id": Kind.I64, "title": Kind.STR, "body": Kind.STR}, ["id"])
    return made


@pytest.fixture
def server(tmp_path, shop):
    running = Running(tmp_path / "data", app="scripted://shop")
    wait_until(running.is_ready, "the server is ready")
    running.subscribe("pages", "app")
    yield running
    running.stop()


class Verifying:
    """A sink in SQLite that a test fills from the log, and its comparison with the source."""

    def __init__(self, server, directory):
        self.server, self.path = server, directory / "copy.db"
        self.client = BulkRowsClient(server.url)
        self.url = f"sqlite:///{self.path}"
        self.sink = SinkThread(
            lambda: sink_of(self.url, Mode.CURRENT, pipeline="copy"), outage_s_max=0.0, proceed=lambda: None
        )
        self.sink.open([self.schema])

    @property
    def schema(self):
        return self.client.info("app", ["pages"]).tables[0].versions[-1].schema

    def catch_up(self, head):
        """Give the sink what the log has, once that is so many changes."""
        wait_until(lambda: self.client.info("app").head >= head, "the changes are in the log")
        progress = self.sink.progress()
        after = 0 if progress is None else progress.offsets["app"]
        found = list(self.client.batches("app", after, head, ["pages"]))
        tables = table_changes([batch for _, batch in found], found[-1][0])
        self.sink.apply(Batch("copy", self.sink.next_number(), {"app": head}, tables))

    def run(self, *, repair=False):
        progress = self.sink.progress()
        definition = Definition(
            name="copy", source="app", tables=("pages",), sink=self.url, server=self.server.url, mode=Mode.CURRENT
        )
        reached = progress.offsets["app"]
        verifier = Verifier(definition, self.client, self.sink, None, SystemClock(), None, reached)
        return verifier.run(repair=repair)

    def close(self):
        self.sink.close()
        self.client.close()


@pytest.fixture
def verifying(server, tmp_path):
    made = Verifying(server, tmp_path)
    yield made
    made.close()


def test_verify_compares_rows_whose_last_change_lacks_cells(verifying, shop):
    for key in (1, 2, 3):
        shop.insert("pages", {"id": key, "title": "t", "body": f"long {key}"})
    verifying.catch_up(3)
    shop.update("pages", {"id": 1}, {"title": "u"})
    shop.update("pages", {"id": 3}, {"title": "v"})
    wait_until(lambda: verifying.client.info("app").head == 5, "the updates are in the log")
    (verdict,) = verifying.run().tables
    assert (verdict.equal, verdict.rows) == (True, 3)
    with sqlite3.connect(verifying.path) as copy:
        copy.execute("UPDATE pages SET body = NULL WHERE id = 3")
    copy.close()
    assert verifying.run().tables[0].keys == [("[3]", "differs")]
    assert verifying.run(repair=True).equal
    verifying.catch_up(5)
    assert verifying.run().equal


def test_verify_goes_over_a_truncation_that_the_sink_does_not_have_yet(verifying, shop):
    shop.insert("pages", {"id": 1, "title": "t", "body": "b"})
    verifying.catch_up(1)
    shop.truncate("pages")
    shop.insert("pages", {"id": 2, "title": "t", "body": "b"})
    wait_until(lambda: verifying.client.info("app").head == 3, "the truncation is in the log")
    (verdict,) = verifying.run().tables
    assert (verdict.equal, verdict.rows) == (True, 1)
    verifying.catch_up(3)
    assert verifying.run().equal


def test_pullers_and_change_streams_get_no_null_for_what_was_not_sent(server, shop):
    shop.insert("pages", {"id": 1, "title": "t", "body": None})
    shop.update("pages", {"id": 1}, {"title": "u"})
    client = Client(server.grpc)
    try:
        (one,) = client.ranges("pages", "app").ranges
        client.register(one, "puller")

        def pulled():
            return [json.loads(change.value) for change in client.pull_log(one, "puller", 0).log_data]

        written = wait_until(lambda: len(found := pulled()) == 2 and found, "both changes")
    finally:
        client.close()
    assert written == [{"title": "t", "body": None}, {"title": "u"}]
    with grpc.insecure_channel(server.grpc) as channel:
        call = channel.unary_stream(
            "/coordinode.v1.replication.ChangeStreamService/Subscribe",
            request_serializer=cdc.SubscribeRequest.SerializeToString,
            response_deserializer=cdc.ChangeEvent.FromString,
        )
        events = call(cdc.SubscribeRequest(), timeout=DEADLINE_S)
        found = [change_streams.row(next(events).ops[0].value)[1] for _ in range(2)]
        events.cancel()
    assert found == [
        {"id": ("Int", 1), "title": ("String", "t"), "body": None},
        {"id": ("Int", 1), "title": ("String", "u")},
    ]
