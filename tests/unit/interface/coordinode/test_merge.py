"""The merged stream of all shards: in the order of timestamps, with one token, held back by no idle shard."""

import asyncio

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streaming import WAIT_S, error_info, streams
from tailrace.access.principal import Capability, Principal
from tailrace.delivery.grpc.call import StatusCode
from tailrace.delivery.grpc.proto import coordinode_cdc_pb2 as proto
from tailrace.log.hybrid import HybridClock
from tailrace.model.number import Offset
from tailrace.testing.log import MemoryLog

SOURCES = ("app", "two", "three")
MERGED = 0xFFFFFFFF
ALL = {"x-tailrace-merge": "all"}


def resume(position, edge_types=()):
    request = proto.SubscribeRequest(resume_token=position)
    request.filters.edge_types.extend(edge_types)
    return request


def places(events):
    return [(event.shard_id, event.log_index) for event in events]


async def test_commits_of_all_shards_come_in_the_order_in_which_they_were_made(tmp_path):
    made = [0, 1, 1, 2, 0, 2, 0]
    async with streams(tmp_path, sources=SOURCES) as world:
        counts = [0, 0, 0]
        expected = []
        for shard in made:
            await world.commit("users", source=SOURCES[shard])
            counts[shard] += 1
            expected.append((shard, counts[shard]))
        async with world.stream(None, ALL) as stream:
            events = await stream.events(len(made))
            assert places(events) == expected
            await world.commit("users", source="two")
            assert places([await stream.event()]) == [(1, 3)]
        assert {event.position.shard_id for event in events} == {MERGED}
        for number, event in enumerate(events[:-1]):
            async with world.stream(resume(event.position)) as stream:
                assert await stream.events(len(made) - number - 1) == events[number + 1 :]


async def test_a_shard_in_which_nothing_happens_holds_nobody_back(tmp_path):
    async with streams(tmp_path, sources=SOURCES) as world, world.stream(None, ALL) as stream:
        assert await stream.begun() == ALL
        for number in range(1, 4):
            await world.commit("users", source="two")
            assert places([await stream.event()]) == [(1, number)]


class LateLog(MemoryLog):
    """A log that gave a timestamp to a commit which it does not show yet."""

    def __init__(self, hybrid):
        super().__init__(hybrid)
        self.pending = None

    @property
    def hlc_complete(self):
        return super().hlc_complete if self.pending is None else self.pending - 1


async def test_a_commit_waits_for_an_earlier_one_that_is_on_its_way(tmp_path, monkeypatch):
    monkeypatch.setattr("streaming.MemoryLog", LateLog)
    async with streams(tmp_path, sources=("app", "two")) as world, world.stream(None, ALL) as stream:
        late = world.logs["app"]
        late.pending = late.hybrid.take(1, 0)
        await world.commit("users", source="two")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await anext(stream.call.messages())
        hybrid, late.hybrid = late.hybrid, HybridClock(late.pending - 1)  # the pending commit is shown now
        await world.commit("users")
        late.hybrid, late.pending = hybrid, None
        assert places(await stream.events(2)) == [(0, 1), (1, 1)]


async def test_equal_timestamps_of_two_shards_are_told_apart_by_the_token(tmp_path):
    async with streams(tmp_path, sources=("app", "two")) as world:
        world.logs["two"].hybrid = HybridClock()
        await world.commit("users", time_us=10**15)
        await world.commit("users", source="two", time_us=10**15)
        async with world.stream(None, ALL) as stream:
            one, two = await stream.events(2)
        assert (one.ts, one.shard_id, two.shard_id) == (two.ts, 0, 1)
        async with world.stream(resume(one.position)) as stream:
            assert await stream.event() == two


async def test_a_filtered_merged_stream_tells_progress_and_resumes_from_it(tmp_path):
    async with streams(tmp_path, sources=("app", "two")) as world:
        await world.commit("users")
        await world.commit("users", source="two")
        request = proto.SubscribeRequest()
        request.filters.edge_types.append("FOLLOWS")
        async with world.stream(request, ALL) as stream:
            progress = await stream.event()
        assert (len(progress.ops), progress.ts, progress.position.shard_id) == (0, 0, MERGED)
        await world.commit("follows", source="two")
        async with world.stream(resume(progress.position, ["FOLLOWS"])) as stream:
            assert places([await stream.event()]) == [(1, 2)]


async def test_commits_lost_in_one_shard_are_retention_lost(tmp_path):
    async with streams(tmp_path, sources=("app", "two")) as world:
        await world.commit("users")
        async with world.stream(None, ALL) as stream:
            first = await stream.event()
        for _ in range(3):
            await world.commit("users", source="two")
        world.logs["two"].forget_before(Offset(3))
        async with world.stream(resume(first.position)) as stream:
            reason, metadata = error_info(await stream.end())
        assert (reason, metadata["first_retained_index"]) == ("RETENTION_LOST", "3")


async def test_a_token_of_a_time_to_come_is_refused_and_that_of_the_newest_event_is_not(tmp_path):
    async with streams(tmp_path, sources=SOURCES) as world:
        await world.commit("users", source="two")
        async with world.stream(None, ALL) as stream:
            newest = (await stream.event()).position
        async with world.stream(resume(newest)) as stream:
            await stream.begun()
        for hlc in (newest.segment_id + 1, 2**64 - 1):
            newest.segment_id = hlc
            async with world.stream(resume(newest)) as stream:
                error = await stream.end()
            assert error.code is StatusCode.OUT_OF_RANGE
            assert error_info(error)[0] == "POSITION_BEYOND_LOG"


async def test_a_principal_gets_the_shards_that_it_reaches(tmp_path):
    reader = Principal("r", capabilities=frozenset({Capability.READ}), namespaces=frozenset({"two", "three"}))
    async with streams(tmp_path, sources=SOURCES) as world:
        for source in SOURCES:
            await world.commit("users", source=source)
        async with world.stream(None, ALL, reader) as stream:
            assert places(await stream.events(2)) == [(1, 1), (2, 1)]


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 700)), min_size=1, max_size=12), st.data())
def test_every_commit_comes_once_and_in_order_wherever_the_stream_was_broken(tmp_path_factory, commits, data):
    async def run():
        async with streams(tmp_path_factory.mktemp("merge"), sources=SOURCES) as world:
            for shard, size in commits:
                await world.commit(*["users"] * size, source=SOURCES[shard])
            events, position = [], None
            while len(events) < len(commits):
                count = data.draw(st.integers(1, len(commits) - len(events)))
                async with world.stream(resume(position) if position else None, None if position else ALL) as stream:
                    events += await stream.events(count)
                    position = events[-1].position
            return events

    async def bounded():
        async with asyncio.timeout(WAIT_S):
            return await run()

    events = asyncio.run(bounded())
    assert [(event.shard_id, len(event.ops)) for event in events] == commits
    assert [event.ts for event in events] == sorted(event.ts for event in events)
