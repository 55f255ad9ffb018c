"""The bulk interface over a real socket: what there is, where to cut it, and the changes as Arrow."""

import asyncio

import httpx
import pyarrow as pa
import pytest

from feeding import schema_of
from tailrace.access.options import AuthConfig
from tailrace.client.bulk import BulkClient, BulkOptions
from tailrace.client.errors import ConnectionFailed, InvalidRequest, NotFound, Unauthorized
from tailrace.interface.bulk import log as bulk
from tailrace.interface.bulk.stream import END
from tailrace.interface.openapi.bulk import BULK_PATHS
from tailrace.model.errors import BehindHorizonError
from tailrace.model.op import Op
from tailrace.model.wanted import Conditions
from web import until, web

pytestmark = pytest.mark.usefixtures("one_process_and_workers")

PATH = "/api/v1/bulk/app"
ONCE = BulkOptions(outage_s_max=0.0, timeout_s=20.0)
AGAIN = BulkOptions(outage_s_max=10.0, timeout_s=20.0)


async def asked(world, ask, options=ONCE):
    """Use the blocking client beside the server of this loop."""
    client = BulkClient(world.address.url, options=options)
    try:
        return await asyncio.to_thread(ask, client)
    finally:
        client.close()


async def fill(world, *commits):
    """Append commits of so many inserts each."""
    for count in commits:
        await world.append(*[Op.INSERT] * count)


async def test_a_source_tells_its_window_and_its_schema_versions():
    async with web() as world:
        await fill(world, 2, 1)
        await world.log.put_schema(schema_of("users", version=2))
        info = await asked(world, lambda client: client.info("app", place="earliest"))
    assert (info.head, info.horizon, info.last_index, info.after) == (3, 1, 2, 0)
    assert [(table.table, [v.schema.version for v in table.versions]) for table in info.tables] == [("users", [1, 2])]
    assert info.schemas()[1] == schema_of("users")


async def test_a_reader_may_wait_for_what_comes_next():
    async with web() as world:
        await fill(world, 2)
        waiting = asyncio.create_task(asked(world, lambda client: client.info("app", beyond=2, wait_s=9.0)))
        assert (await asked(world, lambda client: client.info("app", beyond=2, wait_s=0.01))).head == 2
        assert not waiting.done()
        await fill(world, 1)
        async with asyncio.timeout(20):
            assert (await waiting).head == 3
        assert (await asked(world, lambda client: client.info("app", beyond=2, wait_s=9.0))).head == 3


async def test_the_earliest_place_is_the_first_commit_that_is_wholly_there():
    async with web() as world:
        await fill(world, 3, 2)
        world.log.forget_before(2)
        info = await asked(world, lambda client: client.info("app", place="earliest"))
    assert (info.horizon, info.after) == (2, 3)


@pytest.mark.parametrize(
    ("changes", "through", "cuts"),
    [
        (3, 10, [2, 5, 9, 10]),
        (100, 10, [10]),
        (1, 10, [2, 5, 9, 10]),
        (5, 10, [5, 10]),
        (7, 8, [5]),
        (2, 1, []),
    ],
)
async def test_cuts_lie_where_commits_end_and_only_one_commit_may_be_larger(changes, through, cuts):
    async with web() as world:
        await fill(world, 2, 3, 4, 1)
        found = await asked(world, lambda client: client.cuts("app", 0, through, changes=changes))
    assert found == cuts


async def test_cuts_may_be_asked_for_by_bytes_and_by_number():
    async with web() as world:
        await fill(world, *[1] * 9)
        by_bytes = await asked(world, lambda client: client.cuts("app", 0, 9, changes=100, bytes_max=250))
        first = await asked(world, lambda client: client.cuts("app", 4, 9, changes=2, count=1))
    assert by_bytes == [2, 4, 6, 8, 9]  # the fake says a hundred bytes for each change
    assert first == [6]


@pytest.mark.parametrize("compression", ["none", "lz4", "zstd"])
async def test_the_changes_of_an_interval_come_as_arrow_with_the_schemas_that_they_refer_to(compression):
    async with web() as world:
        await fill(world, 2, 3, 4)
        answer = await world.client.get(
            f"{PATH}/changes", params={"after": 1, "through": 7, "compression": compression}
        )
    assert answer.headers["content-type"] == "application/vnd.apache.arrow.stream"
    assert answer.content.endswith(END)
    table = pa.ipc.open_stream(answer.content).read_all()
    assert table.column("offset").to_pylist() == [2, 3, 4, 5, 6, 7]
    assert table.column("index").to_pylist() == [1, 2, 2, 2, 3, 3]
    assert b'"users"' in table.schema.metadata[b"tailrace.schemas"]


async def test_a_client_reads_only_the_tables_that_it_names():
    async with web() as world:
        other = await world.log.put_schema(schema_of("orders"))
        await fill(world, 2)
        await world.append(Op.INSERT, Op.DELETE, schema=other)
        await fill(world, 1)
        read = await asked(world, lambda client: list(client.batches("app", 0, 5, ["orders"])))
        every = await asked(world, lambda client: list(client.batches("app", 0, 5)))
    assert [offset for _, batch in read for offset in batch.column("offset").to_pylist()] == [3, 4]
    assert {schema.table.name for schemas, _ in read for schema in schemas.values()} == {"orders"}
    assert sum(batch.num_rows for _, batch in every) == 5


@pytest.mark.parametrize(
    ("conditions", "offsets"),
    [
        (Conditions(ops=frozenset({Op.DELETE, Op.UPDATE})), [2, 3]),
        (Conditions(key="id", key_min=1, key_max=1), [2]),
        (Conditions(key="id", key_min=-3, key_max=1), [1, 2]),
        (Conditions(key="name", key_min=1, key_max=1), [1, 2, 3]),
        (Conditions(time_us_min=-1), [1, 2, 3]),
    ],
)
async def test_what_does_not_meet_the_conditions_is_not_sent(conditions, offsets):
    async with web() as world:
        await world.append(Op.INSERT, Op.UPDATE, Op.DELETE)
        found = await asked(world, lambda client: list(client.batches("app", 0, 3, ["users"], conditions)))
    assert [offset for _, batch in found for offset in batch.column("offset").to_pylist()] == offsets


async def test_who_wants_none_of_many_changes_is_told_now_and_then_that_they_are_looked_through(monkeypatch):
    monkeypatch.setattr(bulk, "_QUIET_CHANGES_MAX", 4)
    async with web() as world:
        await world.log.put_schema(schema_of("orders"))
        await fill(world, *[1] * 10)
        answer = await world.client.get(f"{PATH}/changes", params={"after": 0, "tables": "orders"})
    assert [batch.num_rows for batch in pa.ipc.open_stream(answer.content)] == [0, 0]


async def test_who_waits_for_a_table_gets_its_changes_of_a_version_that_came_meanwhile(monkeypatch):
    async with web() as world:
        await fill(world, 1)
        waits, wait = [], world.log.wait
        monkeypatch.setattr(world.log, "wait", lambda *given: waits.append(given) or wait(*given))
        waiting = asyncio.create_task(asked(world, lambda client: list(client.poll("app", 1, ["users"], 20))))
        await until(lambda: waits, "the reader waits")
        await world.append(Op.INSERT, schema=await world.log.put_schema(schema_of("users", version=2)))
        async with asyncio.timeout(20):
            (schemas, batch, _), (_, end, through) = await waiting
    assert batch.column("offset").to_pylist() == [2]
    assert {schema.version for schema in schemas.values()} == {1, 2}
    assert (end, through) == (None, 2)


async def test_what_retention_removed_is_a_typed_error_that_names_the_horizon():
    async with web() as world:
        await fill(world, 3, 3)
        world.log.forget_before(4)
        answer = await world.client.get(f"{PATH}/changes", params={"after": 1})
        with pytest.raises(BehindHorizonError) as behind:
            await asked(world, lambda client: list(client.batches("app", 1, 6)))
        with pytest.raises(BehindHorizonError):
            await asked(world, lambda client: client.cuts("app", 1, 6, changes=1))
    assert answer.status_code == 410
    assert answer.json()["error"]["code"] == "conflict"
    assert answer.json()["error"]["details"] == {"requested": 2, "horizon": 4}
    assert (behind.value.requested, behind.value.horizon) == (2, 4)


async def test_a_stream_that_retention_overtakes_breaks_off_and_the_client_learns_why():
    async with web() as world:
        await fill(world, *[1] * 6)
        read = world.log.read

        async def overtaken(after):
            if after == 3:
                world.log.forget_before(6)
            return await read(after)

        world.log.read = overtaken
        seen = []
        with pytest.raises(BehindHorizonError) as behind:
            await asked(world, lambda client: seen.extend(b.num_rows for _, b in client.batches("app", 0, 6)), AGAIN)
    assert (sum(seen), behind.value.requested) == (3, 4)


@pytest.mark.parametrize(
    ("path", "status", "says"),
    [
        ("/api/v1/bulk/nowhere", 404, "'nowhere'"),
        (f"{PATH}?tables=nothing", 404, "app.nothing"),
        (f"{PATH}?from=sometime", 400, "`from`"),
        (f"{PATH}/cuts", 400, "`after` is missing"),
        (f"{PATH}/cuts?after=0&changes=0", 400, "`changes`"),
        (f"{PATH}/cuts?after=7", 400, "beyond the newest change 1"),
        (f"{PATH}/changes?after=-1", 400, "`after`"),
        (f"{PATH}/changes?after=0&through=9", 400, "beyond the newest change 1"),
        (f"{PATH}/changes?after=0&tables=nothing", 404, "app.nothing"),
        (f"{PATH}/changes?after=0&compression=gzip", 400, "none, lz4, zstd"),
        (f"{PATH}/changes?after=0&ops=destroy", 400, "insert, update, delete, schema, truncate"),
        (f"{PATH}/changes?after=0&key_min=1", 400, "`key`"),
        (f"{PATH}/changes?after=0&key=id&key_max=1e3", 400, "`key_max`"),
    ],
)
async def test_a_wrong_request_is_refused_with_what_to_mend(path, status, says):
    async with web() as world:
        await fill(world, 1)
        answer = await world.client.get(path)
    assert (answer.status_code, says in answer.json()["error"]["message"]) == (status, True), answer.text


NUMBERS = [
    (path, [one["name"] for one in verbs["get"]["parameters"] if one["schema"].get("type") == "integer"])
    for path, verbs in BULK_PATHS.items()
    if "get" in verbs and not path.endswith(("/ranges", "/rows"))
]


@pytest.mark.parametrize(("path", "name"), [(path, name) for path, names in NUMBERS for name in names])
async def test_each_number_that_the_document_names_is_looked_at(path, name):
    params = {**dict.fromkeys(dict(NUMBERS)[path], 1), name: "many"}
    async with web() as world:
        await fill(world, 2)
        answer = await world.client.get(path.format(source="app"), params=params)
    assert (answer.status_code, f"`{name}`" in answer.text) == (400, True), answer.text


async def test_a_bulk_reader_has_a_subscription_that_shows_how_far_it_is():
    async with web() as world:
        await fill(world, 4)
        sub_id, offset = await asked(world, lambda client: client.subscribe("app", ["users"], "earliest"))
        await asked(world, lambda client: client.call("cdc.ack", {"sub_id": sub_id, "offset": 3}))
        (entry,) = (await world.call("cdc.list"))["subscriptions"]
        with pytest.raises(InvalidRequest):
            await asked(world, lambda client: client.subscribe("app", ["users"], "sometime"))
    assert offset == 0
    assert (entry["sub_id"], entry["acked_offset"], entry["backpressure"]["lag"]) == (sub_id, 3, 1)


async def test_the_bulk_interface_asks_for_a_token_like_every_route():
    async with web(auth=AuthConfig(enabled=True, tokens=("secret",))) as world:
        refused = [await world.client.get(f"{PATH}{rest}") for rest in ("", "/cuts?after=0", "/changes?after=0")]
        with pytest.raises(Unauthorized):
            await asked(world, lambda client: client.info("app"))
        known = BulkClient(world.address.url, "secret", ONCE)
        info = await asyncio.to_thread(known.info, "app")
        known.close()
    assert [answer.status_code for answer in refused] == [401] * 3
    assert info.head == 0


async def test_an_unknown_source_and_a_server_that_is_away_are_told_apart():
    async with web() as world:
        with pytest.raises(NotFound):
            await asked(world, lambda client: client.info("nowhere"))
        url = world.address.url
    client = BulkClient(url, options=ONCE)
    with pytest.raises(ConnectionFailed):
        await asyncio.to_thread(client.info, "app")


async def test_only_the_head_is_answered_to_who_wants_no_more():
    async with web() as world:
        await fill(world, 1)
        answer = await world.client.head(f"{PATH}/changes", params={"after": 0})
    assert (answer.status_code, answer.content, answer.headers["tailrace-through"]) == (httpx.codes.OK, b"", "1")
