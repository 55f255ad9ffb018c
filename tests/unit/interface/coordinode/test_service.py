"""`coordinode.v1.replication.ChangeStreamService`, called without a server: the documented generation."""

import pytest

from streaming import QUICK, error_info, next_index, streams, token
from tailrace.access.principal import Capability, Principal
from tailrace.delivery.grpc.call import StatusCode, StatusError
from tailrace.delivery.grpc.proto import coordinode_cdc_pb2 as proto
from tailrace.interface.coordinode.options import ChangeStreamOptions
from tailrace.model.number import Index, Offset

READ = frozenset({Capability.READ})


def subscribe(position=None, edge_types=(), is_migration=None):
    request = proto.SubscribeRequest()
    if position is not None:
        request.resume_token.CopyFrom(position)
    if edge_types or is_migration is not None:
        request.filters.edge_types.extend(edge_types)
        if is_migration is not None:
            request.filters.is_migration = is_migration
    return request


async def test_each_commit_is_one_event_with_all_its_operations(tmp_path):
    async with streams(tmp_path, terms=((Index(1), 1), (Index(2), 4))) as world:
        await world.commit("users", "users", "orders", time_us=5_000_000)
        await world.commit("users", migration=True, time_us=4_000_000)
        async with world.stream() as stream:
            one, two = await stream.events(2)
            await world.commit("users", time_us=9_000_000)
            three = await stream.event()
    assert [(event.log_index, len(event.ops)) for event in (one, two, three)] == [(1, 3), (2, 1), (3, 1)]
    assert [event.is_migration for event in (one, two, three)] == [False, True, False]
    assert [event.term for event in (one, two, three)] == [1, 4, 4]
    assert [event.ts >> 18 for event in (one, two, three)] == [5000, 5000, 9000]
    assert one.ts < two.ts < three.ts
    assert [next_index(event.position) for event in (one, two, three)] == [2, 3, 4]
    assert {event.position.segment_id for event in (one, two, three)} == {1}


@pytest.mark.parametrize("position", [None, token(0), token(1), token(0, 1)], ids=["absent", "zero", "1+0", "0+1"])
async def test_a_stream_begins_with_the_oldest_commit(tmp_path, position):
    async with streams(tmp_path) as world:
        for _ in range(3):
            await world.commit("users")
        async with world.stream(subscribe(position)) as stream:
            assert [event.log_index for event in await stream.events(3)] == [1, 2, 3]


async def test_a_stream_resumes_behind_each_event(tmp_path):
    async with streams(tmp_path) as world:
        for count in (1, 600, 2, 3):
            await world.commit(*["users"] * count)
        async with world.stream() as stream:
            events = await stream.events(4)
        for number, event in enumerate(events[:-1]):
            async with world.stream(subscribe(event.position)) as stream:
                assert await stream.events(3 - number) == events[number + 1 :]
        async with world.stream(subscribe(events[-1].position)) as stream:
            await world.commit("users")
            assert (await stream.event()).log_index == 5


async def test_a_commit_larger_than_an_event_comes_in_several_that_resume_before_it(tmp_path):
    options = ChangeStreamOptions(event_bytes_max=2000)
    async with streams(tmp_path, options=options) as world:
        await world.commit("users")
        await world.commit(*["users"] * 1500)
        await world.commit("users")
        await world.commit(*["users"] * 100)
        await world.commit(*["users"] * 2)
        async with world.stream() as stream:
            events = [await stream.event()]
            while events[-1].log_index < 5:
                events.append(await stream.event())
        for index, count in enumerate([1, 1500, 1, 100, 2], start=1):
            parts = [event for event in events if event.log_index == index]
            assert sum(len(part.ops) for part in parts) == count
            assert [next_index(part.position) for part in parts] == [index] * (len(parts) - 1) + [index + 1]
            assert all(part.ByteSize() < 2300 for part in parts)
            assert len({part.ts for part in parts}) == 1
        assert [event.log_index for event in events] == sorted(event.log_index for event in events)
        middle = next(event for event in events if event.log_index == 2)
        async with world.stream(subscribe(middle.position)) as stream:
            assert await stream.event() == middle


async def test_an_operation_larger_than_an_event_is_sent_whole(tmp_path):
    async with streams(tmp_path, options=ChangeStreamOptions(event_bytes_max=1000)) as world:
        await world.commit("users", text="y" * 5000)
        async with world.stream() as stream:
            assert (await stream.event()).ByteSize() > 5000


FILTERED = [
    (("users",), False),
    (("follows",), False),
    (("users", "likes"), False),
    (("follows", "likes"), True),
    (("users",), True),
]


@pytest.mark.parametrize(
    ("edge_types", "is_migration", "wanted"),
    [
        ((), None, [1, 2, 3, 4, 5]),
        (("FOLLOWS",), None, [2, 4]),
        (("LIKES",), None, [3, 4]),
        (("FOLLOWS", "LIKES"), None, [2, 3, 4]),
        (("FOLLOW",), None, []),
        ((), True, [4, 5]),
        ((), False, [1, 2, 3]),
        (("FOLLOWS",), False, [2]),
        (("FOLLOWS",), True, [4]),
    ],
    ids=str,
)
async def test_filters_choose_whole_commits_and_are_anded(tmp_path, edge_types, is_migration, wanted):
    async with streams(tmp_path) as world:
        for tables, migration in FILTERED:
            await world.commit(*tables, migration=migration)
        async with world.stream(subscribe(None, edge_types, is_migration)) as stream:
            events = await stream.events(1)
            while events[-1].log_index < len(FILTERED):
                events.append(await stream.event())
    sent = [event for event in events if event.ops]
    assert [event.log_index for event in sent] == wanted
    plain = {"users": 1, "follows": 3, "likes": 3}
    assert [len(event.ops) for event in sent] == [
        sum(plain[table] for table in FILTERED[index - 1][0]) for index in wanted
    ]
    if wanted[-1:] != [5]:
        progress = events[-1]
        assert (progress.log_index, progress.ts, progress.term, len(progress.ops)) == (5, 0, 0, 0)
        assert progress.position == token(6)


async def test_a_filtered_stream_resumes_behind_what_it_left_out(tmp_path):
    async with streams(tmp_path) as world:
        await world.commit("users")
        async with world.stream(subscribe(edge_types=["FOLLOWS"])) as stream:
            position = (await stream.event()).position
        await world.commit("follows")
        async with world.stream(subscribe(position, ["FOLLOWS"])) as stream:
            assert (await stream.event()).log_index == 2


async def test_an_unfiltered_stream_tells_no_progress(tmp_path):
    async with streams(tmp_path) as world, world.stream() as stream:
        await stream.begun()
        await world.commit("users")
        assert (await stream.event()).log_index == 1
        for _ in range(20):
            await world.logs["app"].wait(Offset(1), QUICK.progress_s)
        assert len(stream.call.writes) == 1


@pytest.mark.parametrize("place", [0, 700, 1499], ids=["first", "middle", "last"])
async def test_one_edge_anywhere_in_a_huge_commit_brings_all_of_it(tmp_path, place):
    tables = ["users"] * 1500
    tables[place] = "follows"
    async with streams(tmp_path, options=ChangeStreamOptions(event_bytes_max=4000, progress_s=0.01)) as world:
        await world.commit(*["users"] * 1000)
        await world.commit(*tables)
        await world.commit("follows")
        async with world.stream(subscribe(edge_types=["FOLLOWS"])) as stream:
            events = [await stream.event()]
            while events[-1].log_index < 3:
                events.append(await stream.event())
    sent = [event for event in events if event.ops]
    assert {event.log_index for event in sent} == {2, 3}
    assert sum(len(event.ops) for event in sent if event.log_index == 2) == 1502
    assert all(event.ByteSize() < 5000 for event in sent)


async def test_streams_of_equal_filters_share_their_bytes(tmp_path):
    async with streams(tmp_path) as world:
        await world.commit("users", "follows")
        await world.commit("users")
        async with world.stream() as one, world.stream() as two:
            assert await one.events(2) == await two.events(2)
            assert one.call.writes[0] == two.call.writes[0]


async def test_a_removed_commit_is_retention_lost(tmp_path):
    async with streams(tmp_path) as world:
        for _ in range(5):
            await world.commit("users", "users")
        world.logs["app"].forget_before(Offset(4))  # in the middle of the second commit
        async with world.stream(subscribe(token(1, 1))) as stream:
            error = await stream.end()
        assert isinstance(error, StatusError)
        assert error.code is StatusCode.FAILED_PRECONDITION
        assert error.message == "change stream retention lost: retention lost: checkpoint 2 is below shard floor 3"
        assert error_info(error) == ("RETENTION_LOST", {"requested_index": "2", "first_retained_index": "3"})
        async with world.stream() as stream:
            assert (await stream.event()).log_index == 3


async def test_a_reader_that_retention_overtakes_is_told(tmp_path):
    async with streams(tmp_path) as world:
        await world.commit("users")
        async with world.stream() as stream:
            await stream.event()
            stream.call.hold()
            await world.commit("users")
            await stream.begun()
            for _ in range(3):
                await world.commit("users")
            world.logs["app"].forget_before(Offset(4))
            stream.call.release()
            error = await stream.end()
        assert error_info(error)[0] == "RETENTION_LOST"


@pytest.mark.parametrize(
    ("request_", "metadata", "code", "text"),
    [
        (
            subscribe(token(1, shard=7)),
            {},
            StatusCode.INVALID_ARGUMENT,
            "resume token is for shard 7, this stream serves",
        ),
        (subscribe(token(2**64 - 1, 1)), {}, StatusCode.INVALID_ARGUMENT, "exceeds 64 bits"),
        (subscribe(token(3)), {}, StatusCode.OUT_OF_RANGE, "resume token names commit 3, the newest is 1"),
        (subscribe(token(1)), {"x-tailrace-shard": "1"}, StatusCode.INVALID_ARGUMENT, "serves shard 1"),
        (subscribe(), {"x-tailrace-shard": "9"}, StatusCode.INVALID_ARGUMENT, "unknown shard 9"),
        (subscribe(), {"x-tailrace-shard": "one"}, StatusCode.INVALID_ARGUMENT, "write the number"),
        (subscribe(), {"x-tailrace-merge": "some"}, StatusCode.INVALID_ARGUMENT, "write all"),
        (subscribe(token(1)), {"x-tailrace-merge": "all"}, StatusCode.INVALID_ARGUMENT, "for one shard"),
        (subscribe(edge_types=["t"] * 2000), {}, StatusCode.INVALID_ARGUMENT, "at most 1024"),
        (b"\xff\xff", {}, StatusCode.INVALID_ARGUMENT, "is not a valid coordinode.v1.replication.SubscribeRequest"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
async def test_requests_that_cannot_be_served_are_refused(tmp_path, request_, metadata, code, text):
    async with streams(tmp_path, sources=("app", "two")) as world:
        await world.commit("users")
        async with world.stream(request_, metadata) as stream:
            error = await stream.end()
    assert (error.code, text in error.message) == (code, True)
    if code is StatusCode.OUT_OF_RANGE:
        assert error_info(error) == ("POSITION_BEYOND_LOG", {"requested_index": "3", "last_index": "1"})


@pytest.mark.parametrize(
    ("request_", "metadata"),
    [(subscribe(), {"x-tailrace-shard": "1"}), (subscribe(token(0, shard=1)), {}), (subscribe(token(1, shard=1)), {})],
    ids=["metadata", "oldest of the shard", "token"],
)
async def test_another_shard_is_served_on_request(tmp_path, request_, metadata):
    async with streams(tmp_path, sources=("app", "two")) as world:
        await world.commit("users")
        await world.commit("users", "users", source="two")
        async with world.stream(request_, metadata) as stream:
            event = await stream.event()
            assert await stream.begun() == {"x-tailrace-shard": "1"}
    assert (event.shard_id, event.log_index, len(event.ops)) == (1, 1, 2)
    assert event.position == token(1, 1, shard=1)
    assert event.ops[0].key.startswith(b"node:\x00\x01:")


async def test_a_stream_is_one_of_those_of_which_a_principal_may_have_so_many(tmp_path):
    async with streams(tmp_path) as world:
        assert world.methods["Subscribe"].counted


async def test_capture_switched_off_is_told(tmp_path):
    async with streams(tmp_path, options=ChangeStreamOptions(capture_enabled=False)) as world, world.stream() as stream:
        assert (await stream.end()).code is StatusCode.FAILED_PRECONDITION


async def test_a_shard_that_may_not_be_reached_and_one_that_is_not_there_are_refused_alike(tmp_path):
    reader = Principal("r", capabilities=READ, namespaces=frozenset({"two"}))
    async with streams(tmp_path, sources=("app", "two")) as world:
        refusals = []
        for number in (0, 7):
            for request, metadata in ((subscribe(), {"x-tailrace-shard": str(number)}), (token(1, shard=number), {})):
                asked = request if isinstance(request, proto.SubscribeRequest) else subscribe(request)
                async with world.stream(asked, metadata, reader) as stream:
                    error = await stream.end()
                refusals.append((error.code, error.message.replace(f"shard {number}", "shard N")))
    assert refusals[:2] == refusals[2:]
    assert {code for code, _ in refusals} == {StatusCode.INVALID_ARGUMENT}


async def test_a_principal_sees_its_sources_tables_and_rows_alone(tmp_path):
    options = ChangeStreamOptions(progress_s=0)  # it tells how far it has read wherever it may
    async with streams(tmp_path, sources=("app", "two"), options=options) as world:
        await world.commit(("users", 1, 1), ("secrets", 2, 2), ("users", 3, 3))
        await world.commit("secrets")
        await world.commit(("users", 3, 3))
        tables = frozenset({"app.users"})
        reader = Principal("r", capabilities=READ, namespaces=frozenset({"app"}), tables=tables)
        async with world.stream(principal=reader) as stream:
            events = await stream.commits(2)
        assert [(event.log_index, len(event.ops)) for event in events] == [(1, 2), (3, 1)]
        reader = Principal("r", capabilities=READ, tables=tables, rows={"app.users": "a = 3"})
        async with world.stream(principal=reader) as stream:
            events = await stream.commits(2)
        assert [(event.log_index, len(event.ops)) for event in events] == [(1, 1), (3, 1)]
        reader = Principal("r", capabilities=READ, namespaces=frozenset({"two"}))
        async with world.stream(principal=reader) as stream:
            assert (await stream.begun())["x-tailrace-shard"] == "1"
        async with world.stream(principal=Principal("r", namespaces=frozenset())) as stream:
            assert (await stream.end()).code is StatusCode.PERMISSION_DENIED
