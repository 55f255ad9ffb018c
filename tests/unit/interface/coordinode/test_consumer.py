"""Registered consumers of change streams, called without a server: the later generation."""

import pytest

from streaming import error_info, next_index, streams, token
from tailrace.access.principal import Capability, Principal
from tailrace.delivery.grpc.call import StatusCode, StatusError
from tailrace.delivery.grpc.proto import coordinode_cdc_pb2 as proto
from tailrace.interface.coordinode.options import ConsumerOptions
from tailrace.model.number import Offset
from tailrace.testing.clock import FakeClock

STRICT = proto.ConsumerRetention(strict=proto.StrictRetention())
SLOW_S = 10_000


def bounded(lag_ms=60_000, size=1 << 30, liveness_ms=None):
    policy = proto.BoundedRetention(max_progress_lag_ms=lag_ms, max_retained_bytes=size)
    if liveness_ms is not None:
        policy.liveness_timeout_ms = liveness_ms
    return proto.ConsumerRetention(bounded=policy)


def register(consumer_id="c", retention=STRICT, position=None, edge_types=()):
    request = proto.SubscribeRequest(consumer_id=consumer_id, retention=retention)
    if position is not None:
        request.resume_token.CopyFrom(position)
    request.filters.edge_types.extend(edge_types)
    return request


def resume(incarnation, consumer_id="c", position=None):
    request = proto.SubscribeRequest(consumer_id=consumer_id, incarnation=incarnation)
    if position is not None:
        request.resume_token.CopyFrom(position)
    return request


def acknowledgement(position, incarnation=1, consumer_id="c"):
    return proto.AcknowledgeSubscriptionRequest(consumer_id=consumer_id, incarnation=incarnation, position=position)


def cancellation(incarnation=1, consumer_id="c"):
    return proto.CancelSubscriptionRequest(consumer_id=consumer_id, incarnation=incarnation)


async def acknowledge(world, *arguments, **named):
    await world.unary("AcknowledgeSubscription", acknowledgement(*arguments, **named))


async def cancel(world, *arguments, **named):
    await world.unary("CancelSubscription", cancellation(*arguments, **named))


async def test_a_registration_outlives_its_stream_and_the_server_and_resumes_at_its_checkpoint(tmp_path):
    async with streams(tmp_path) as world:
        for _ in range(4):
            await world.commit("users")
        async with world.stream(register()) as stream:
            assert (await stream.begun())["x-coordinode-consumer-incarnation"] == "1"
            one, two, *_ = await stream.events(4)
        await acknowledge(world, two.position)
        await acknowledge(world, one.position)  # never back
        await world.start()
        async with world.stream(resume(1)) as stream:
            assert (await stream.begun())["x-coordinode-consumer-incarnation"] == "1"
            assert [event.log_index for event in await stream.events(2)] == [3, 4]
        async with world.stream(resume(1, position=one.position)) as stream:
            assert (await stream.event()).log_index == 2


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (proto.SubscribeRequest(consumer_id="c"), "retention is required"),
        (register(retention=proto.ConsumerRetention()), "retention is required"),
        (register(retention=bounded(lag_ms=0)), "max_progress_lag_ms"),
        (register(retention=bounded(size=0)), "max_retained_bytes"),
        (register(retention=bounded(liveness_ms=10_000)), "heartbeat interval of 10000 ms"),
        (register(position=token(1, shard=3)), "resume token is for shard 3"),
        (register(position=token(2**64 - 1, 5)), "64 bits"),
        (register("", STRICT), "consumer_id is required"),
        (proto.SubscribeRequest(incarnation=3), "consumer_id is required"),
        (register("c" * 300), "at most 255"),
        (register("a\nb"), "printable"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
async def test_an_invalid_registration_registers_nothing(tmp_path, request_, text):
    async with streams(tmp_path) as world:
        async with world.stream(request_) as stream:
            error = await stream.end()
        assert (error.code, text in error.message) == (StatusCode.INVALID_ARGUMENT, True)
        with pytest.raises(StatusError) as unknown:
            await acknowledge(world, token(1))
        assert unknown.value.code is StatusCode.NOT_FOUND


async def test_a_registration_below_the_retained_commits_is_retention_lost_and_registers_nothing(tmp_path):
    async with streams(tmp_path) as world:
        for _ in range(3):
            await world.commit("users")
        world.logs["app"].forget_before(Offset(3))
        async with world.stream(register(position=token(1))) as stream:
            assert error_info(await stream.end())[0] == "RETENTION_LOST"
        async with world.stream(resume(1)) as stream:
            assert (await stream.end()).code is StatusCode.NOT_FOUND


async def test_a_live_id_is_registered_once_and_several_consumers_live_side_by_side(tmp_path):
    async with streams(tmp_path) as world:
        await world.commit("users")
        async with world.stream(register()) as one, world.stream(register("d")) as other:
            assert (await one.event()) == (await other.event())
            async with world.stream(register()) as again:
                assert (await again.end()).code is StatusCode.ALREADY_EXISTS
            await world.commit("users")
            assert (await one.event()).log_index == (await other.event()).log_index == 2


async def test_what_is_not_there_is_not_found(tmp_path):
    async with streams(tmp_path) as world:
        async with world.stream(resume(1)) as stream:
            assert (await stream.end()).code is StatusCode.NOT_FOUND
        async with world.stream(register()) as stream:
            await stream.begun()
        async with world.stream(resume(2)) as stream:
            assert (await stream.end()).code is StatusCode.NOT_FOUND
        for call in (acknowledge(world, token(1), consumer_id="x"), cancel(world, consumer_id="x")):
            with pytest.raises(StatusError) as error:
                await call
            assert error.value.code is StatusCode.NOT_FOUND


@pytest.mark.parametrize(
    "call",
    [
        acknowledgement(token(4)),
        acknowledgement(token(2**64 - 1)),
        acknowledgement(token(1, shard=1)),
        acknowledgement(token(1), incarnation=0),
        acknowledgement(token(1), consumer_id=""),
        proto.AcknowledgeSubscriptionRequest(consumer_id="c", incarnation=1),
        cancellation(incarnation=0),
        cancellation(consumer_id=""),
    ],
    ids=[
        "past the newest",
        "far past it",
        "another shard",
        "no incarnation",
        "no id",
        "no position",
        "cancel no incarnation",
        "cancel no id",
    ],
)
async def test_calls_that_make_no_sense_are_refused_and_change_nothing(tmp_path, call):
    async with streams(tmp_path) as world:
        await world.commit("users")
        await world.commit("users")
        async with world.stream(register()) as stream:
            await stream.begun()
        method = "Acknowledge" if isinstance(call, proto.AcknowledgeSubscriptionRequest) else "Cancel"
        with pytest.raises(StatusError) as error:
            await world.unary(f"{method}Subscription", call)
        assert error.value.code is StatusCode.INVALID_ARGUMENT
        async with world.stream(resume(1)) as stream:
            assert (await stream.event()).log_index == 1


async def test_a_cancelled_consumer_ends_with_its_stream_and_comes_back_as_the_next_incarnation(tmp_path):
    async with streams(tmp_path) as world:
        await world.commit("users")
        async with world.stream(register()) as stream:
            await acknowledge(world, (await stream.event()).position)
            await cancel(world)
            error = await stream.end()
        assert error.code is StatusCode.FAILED_PRECONDITION
        told = {"incarnation": "1", "reason": "CANCELLED", "checkpoint": "1"}
        assert error_info(error) == ("CONSUMER_TERMINATED", told)
        await world.start()
        for call in (acknowledge(world, token(2)), cancel(world)):
            with pytest.raises(StatusError) as ended:
                await call
            assert error_info(ended.value) == ("CONSUMER_TERMINATED", told)
        async with world.stream(register()) as stream:
            assert (await stream.begun())["x-coordinode-consumer-incarnation"] == "2"
        async with world.stream(resume(1)) as stream:
            reason, metadata = error_info(await stream.end())
        assert (reason, metadata["incarnation"], metadata["reason"]) == (
            "CONSUMER_TERMINATED",
            "2",
            "STALE_INCARNATION",
        )


async def test_a_consumer_that_does_not_read_is_cancelled_nevertheless(tmp_path):
    async with streams(tmp_path) as world:
        await world.commit("users")
        async with world.stream(register()) as stream:
            await stream.event()
            stream.call.hold()
            await world.commit("users")
            await cancel(world)
            assert error_info(await stream.end())[0] == "CONSUMER_TERMINATED"


async def test_a_filtered_consumer_acknowledges_the_progress_that_it_is_told(tmp_path):
    async with streams(tmp_path) as world:
        await world.commit("users")
        await world.commit("users")
        async with world.stream(register(edge_types=["FOLLOWS"])) as stream:
            progress = await stream.event()
            while progress.log_index < 2:
                progress = await stream.event()
        assert (len(progress.ops), next_index(progress.position)) == (0, 3)
        await acknowledge(world, progress.position)
        await world.commit("follows")
        async with world.stream(resume(1)) as stream:
            assert (await stream.event()).log_index == 3


async def test_retention_keeps_what_a_consumer_has_not_acknowledged(tmp_path):
    async with streams(tmp_path) as world:
        log = world.logs["app"]
        for _ in range(6):
            await world.commit("users")
        async with world.stream(register(position=token(3))) as stream:
            await stream.begun()
        log.forget_before(Offset(6))
        assert log.horizon == 3
        await acknowledge(world, token(5))
        log.forget_before(Offset(6))
        assert log.horizon == 5
        await world.start()
        log.forget_before(Offset(6))
        assert log.horizon == 5
        await cancel(world)
        log.forget_before(Offset(6))
        assert log.horizon == 6


async def ends_with(world, consumer_id="c"):
    async with world.stream(resume(1, consumer_id)) as stream:
        error = await stream.end()
    reason, metadata = error_info(error)
    assert reason == "CONSUMER_TERMINATED"
    return metadata["reason"]


async def test_a_bounded_consumer_ends_when_it_falls_too_far_behind(tmp_path):
    clock = FakeClock()
    async with streams(tmp_path, clock=clock) as world:
        for consumer_id, retention in {"slow": bounded(lag_ms=5000), "quick": bounded(lag_ms=5000)}.items():
            async with world.stream(register(consumer_id, retention)) as stream:
                await stream.begun()
        await world.commit("users", time_us=clock.now_us())
        clock.advance(5)
        await world.consumers.check()
        await acknowledge(world, token(2), consumer_id="quick")
        clock.advance(1)
        await world.consumers.check()
        assert await ends_with(world, "slow") == "PROGRESS_LAG_EXCEEDED"
        async with world.stream(resume(1, "quick")) as stream:
            await stream.begun()
        ended = world.metrics.registry.get_sample_value(
            "tailrace_consumers_ended_total", {"reason": "PROGRESS_LAG_EXCEEDED"}
        )
        assert ended == 1


async def test_a_bounded_consumer_ends_when_too_much_is_kept_for_it(tmp_path):
    async with streams(tmp_path) as world:
        async with world.stream(register(retention=bounded(lag_ms=10**15, size=250))) as stream:
            await stream.begun()
            await world.commit("users", "users")
            await world.consumers.check()
            retained = world.metrics.registry.get_sample_value("tailrace_consumer_retained_bytes", {"source": "app"})
            assert retained == 200
            await world.commit("users")
            await world.consumers.check()
            assert error_info(await stream.end())[1]["reason"] == "RETAINED_BYTES_EXCEEDED"
        log = world.logs["app"]
        log.forget_before(Offset(4))
        assert log.horizon == 4


async def test_a_strict_consumer_holds_the_log_up_to_the_limit_of_the_server(tmp_path):
    options = ConsumerOptions(strict_bytes_max=1000)
    async with streams(tmp_path, consumer_options=options) as world:
        async with world.stream(register()) as stream:
            await stream.begun()
        await world.commit(*["users"] * 10)
        await world.consumers.check()
        await world.commit("users")
        await world.consumers.check()
        assert await ends_with(world) == "RETAINED_BYTES_EXCEEDED"


async def test_a_silent_consumer_ends_and_one_with_a_stream_is_heard(tmp_path):
    clock = FakeClock()
    async with streams(tmp_path, clock=clock) as world:
        retention = bounded(lag_ms=10**9, liveness_ms=20_000)
        async with world.stream(register("gone", retention)) as stream:
            await stream.begun()
        async with world.stream(register("reading", retention)) as stream:
            await stream.begun()
            clock.advance(20)
            await world.consumers.check()
            clock.advance(1)
            await world.consumers.check()
            assert await ends_with(world, "gone") == "LIVENESS_TIMEOUT"
            clock.advance(20)
            await world.consumers.check()
        async with world.stream(resume(1, "reading")) as stream:
            await stream.begun()


async def test_time_in_which_the_server_did_not_run_is_not_silence(tmp_path):
    clock = FakeClock()
    async with streams(tmp_path, clock=clock) as world:
        async with world.stream(register(retention=bounded(liveness_ms=20_000))) as stream:
            await stream.begun()
        clock.advance(SLOW_S)
        await world.start()
        await world.consumers.check()
        async with world.stream(resume(1)) as stream:
            await stream.begun()


async def test_there_are_no_more_consumers_than_allowed(tmp_path):
    async with streams(tmp_path, consumer_options=ConsumerOptions(consumers_max=1)) as world:
        async with world.stream(register("one")) as stream:
            await stream.begun()
        async with world.stream(register("two")) as stream:
            assert (await stream.end()).code is StatusCode.RESOURCE_EXHAUSTED
        await cancel(world, consumer_id="one")
        async with world.stream(register("two")) as stream:
            await stream.begun()


async def test_a_consumer_belongs_to_the_principal_that_registered_it(tmp_path):
    read = frozenset({Capability.READ})
    mine, yours = Principal("mine", capabilities=read), Principal("yours", capabilities=read)
    async with streams(tmp_path) as world:
        async with world.stream(register(), principal=mine) as stream:
            await stream.begun()
        for method, call in (("Acknowledge", acknowledgement(token(1))), ("Cancel", cancellation())):
            with pytest.raises(StatusError) as error:
                await world.unary(f"{method}Subscription", call, principal=yours)
            assert error.value.code is StatusCode.NOT_FOUND
        async with world.stream(resume(1), principal=yours) as stream:
            assert (await stream.end()).code is StatusCode.NOT_FOUND
        await world.unary("CancelSubscription", cancellation(), principal=mine)


async def test_each_principal_has_ids_of_its_own_and_learns_nothing_of_those_of_others(tmp_path):
    mine, yours = (Principal(name, capabilities=frozenset({Capability.READ})) for name in ("mine", "yours"))
    admin = Principal("admin", capabilities=frozenset({Capability.ADMIN}))
    async with streams(tmp_path) as world:
        for principal in (mine, yours):
            async with world.stream(register(), principal=principal) as stream:
                assert (await stream.begun())["x-coordinode-consumer-incarnation"] == "1"
        await world.unary("CancelSubscription", cancellation(), principal=yours)
        await world.start()
        await world.unary("AcknowledgeSubscription", acknowledgement(token(1)), principal=mine)
        async with world.stream(resume(1), principal=yours) as stream:
            assert error_info(await stream.end())[0] == "CONSUMER_TERMINATED"
        await world.unary("CancelSubscription", cancellation(), principal=admin)
        async with world.stream(register(), principal=mine) as stream:
            assert (await stream.begun())["x-coordinode-consumer-incarnation"] == "2"


async def test_a_merged_stream_takes_no_consumer(tmp_path):
    async with streams(tmp_path) as world, world.stream(register(), {"x-tailrace-merge": "all"}) as stream:
        assert (await stream.end()).code is StatusCode.INVALID_ARGUMENT


async def test_a_consumer_of_a_source_that_is_gone_is_not_found_and_can_be_cancelled(tmp_path):
    async with streams(tmp_path, sources=("app", "two")) as world:
        request = register(position=token(0, shard=1))
        async with world.stream(request) as stream:
            assert (await stream.begun())["x-tailrace-shard"] == "1"
        await world.commit("users", source="two")
        gone = world.shards.pop(1)
        await world.start()
        await world.consumers.check()
        async with world.stream(resume(1)) as stream:
            assert (await stream.end()).code is StatusCode.NOT_FOUND
        with pytest.raises(StatusError) as error:
            await acknowledge(world, token(2, shard=1))
        assert error.value.code is StatusCode.NOT_FOUND
        await cancel(world)
        world.shards[1] = gone
        await world.start()
        async with world.stream(request) as stream:
            assert (await stream.begun())["x-coordinode-consumer-incarnation"] == "2"
