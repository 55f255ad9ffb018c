"""The loop of every stream of changes: one policy of acknowledgements, one way to wait and to end, on every wire."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from feeding import draft_of, feeding
from tailrace.delivery.http.options import HttpOptions
from tailrace.delivery.http.streaming import StreamTools
from tailrace.delivery.presenter import Presenter
from tailrace.delivery.sender import SCANNED_FAR, Sender, Sending, SendLimits
from tailrace.delivery.view import view_of
from tailrace.interface.skeindb.framing import SseFraming, WsFraming
from tailrace.interface.skeindb.stream import Stream
from tailrace.interface.sochdb.event import SOCHDB
from tailrace.interface.sochdb.gateway import GatewayEvents
from tailrace.metrics import Metrics
from tailrace.model.errors import BehindHorizonError, UnknownSubscriptionError
from tailrace.model.op import Op
from tailrace.model.start import After
from tailrace.subscription.access import Scopes

LIMITS = SendLimits(1024, 1 << 20)
WAIT_S = 20


def sochdb(tools, feed):
    view = view_of(SOCHDB, feed.subscription)
    return Sending(tools, feed, view, LIMITS, auto_ack=feed.subscription.auto_ack)


WIRES = {
    "sse": lambda tools, feed: Stream(tools, feed, SseFraming()),
    "ws": lambda tools, feed: Stream(tools, feed, WsFraming()),
    "gateway": lambda tools, feed: GatewayEvents(tools, feed, LIMITS, b'{"event":'),
    "sochdb": sochdb,
}


@pytest.fixture(params=WIRES.values(), ids=WIRES)
def sending_of(request):
    return request.param


@asynccontextmanager
async def world_of(**options):
    async with feeding(**options) as world:
        metrics = Metrics()
        presenter = Presenter(1 << 20, metrics.encoded_changes)
        yield world, StreamTools(Scopes(world.service), presenter, metrics, HttpOptions())


async def turn(sending):
    """Take and write once, as the sender does; return what was written."""
    async with asyncio.timeout(WAIT_S):
        await sending.wait()
    data = await sending.take()
    await sending.sent()
    return data


def value(metric, wire):
    """Return the value of a metric of one wire."""
    return sum(sample.value for sample in metric.labels(wire).collect()[0].samples if sample.name.endswith("_total"))


@pytest.mark.parametrize("auto_ack", [False, True])
async def test_what_was_written_is_acknowledged_where_that_is_automatic(sending_of, auto_ack):
    async with world_of() as (world, tools):
        subscription = await world.subscribe(auto_ack=auto_ack)
        await world.append(*[Op.INSERT] * 5)
        with world.service.feed(subscription.id, After(0)) as feed:
            sending = sending_of(tools, feed)
            assert await turn(sending)
            assert world.service.subscription(subscription.id).record.cursor == (5 if auto_ack else 0)
            assert sending.last == 5


async def test_what_a_narrow_filter_passes_over_is_acknowledged_when_it_is_much(sending_of):
    async with world_of() as (world, tools):
        subscription = await world.subscribe([Op.DELETE], auto_ack=True)
        with world.service.feed(subscription.id, After(0)) as feed:
            sending = sending_of(tools, feed)
            await world.append(*[Op.INSERT] * 10)
            await sending.take()
            await sending.sent()
            assert feed.after == 10
            assert world.service.subscription(subscription.id).record.cursor == 0
            await world.log.append([draft_of([(Op.INSERT, world.schema_id)] * (SCANNED_FAR + 10))])
            while not feed.caught_up:
                assert await turn(sending) == b""
            assert world.service.subscription(subscription.id).record.cursor >= SCANNED_FAR


async def test_what_was_written_is_counted_once(sending_of):
    async with world_of() as (world, tools):
        subscription = await world.subscribe()
        await world.append(*[Op.INSERT] * 5)
        with world.service.feed(subscription.id, After(0)) as feed:
            sending = sending_of(tools, feed)
            data = await turn(sending)
            await sending.sent()
            wire = sending._view.wire.name
            assert value(tools.metrics.delivered_changes, wire) == 5
            assert value(tools.metrics.delivered_bytes, wire) == len(data)


async def test_a_paused_feed_waits(sending_of):
    async with world_of() as (world, tools):
        subscription = await world.subscribe()
        await world.append(Op.INSERT)
        await world.service.subscription(subscription.id).pause()
        with world.service.feed(subscription.id, After(0)) as feed:
            sending = sending_of(tools, feed)
            if isinstance(sending, Stream):
                await sending.wait()  # the first time it returns at once: the state may have to be sent
            await sending.take()
            waiting = asyncio.ensure_future(sending.wait())
            for _ in range(10):
                await asyncio.sleep(0)
            assert not waiting.done()
            await world.service.subscription(subscription.id).resume()
            await asyncio.wait_for(waiting, WAIT_S)
            assert await turn(sending)


async def test_a_stream_ends_with_the_subscription(sending_of):
    async with world_of() as (world, tools):
        subscription = await world.subscribe()
        await world.append(Op.INSERT)

        async def write(_data):
            await world.service.subscription(subscription.id).close()

        with world.service.feed(subscription.id, After(0)) as feed:
            async with asyncio.timeout(WAIT_S):
                ending = await Sender(tools, write).send(sending_of(tools, feed))
        assert isinstance(ending, UnknownSubscriptionError)


async def test_a_lost_place_ends_the_stream_and_is_counted(sending_of):
    async with world_of() as (world, tools):
        subscription = await world.subscribe()
        await world.append(*[Op.INSERT] * 9)

        async def write(_data):
            await asyncio.sleep(0)

        with world.service.feed(subscription.id, After(2)) as feed:
            world.log.forget_before(6)
            sending = sending_of(tools, feed)
            assert isinstance(await Sender(tools, write).send(sending), BehindHorizonError)
            assert value(tools.metrics.resnapshots, sending._view.wire.name) == 1


async def test_a_write_that_does_not_end_holds_back_the_others_of_its_connection_alone(sending_of):
    async with world_of() as (world, tools):
        subscriptions = [await world.subscribe() for _ in range(2)]
        await world.append(Op.INSERT)
        written, blocked = [], asyncio.Event()

        async def write(data):
            written.append(data)
            await blocked.wait()

        with (
            world.service.feed(subscriptions[0].id, After(0)) as first,
            world.service.feed(subscriptions[1].id, After(0)) as second,
        ):
            sender = Sender(tools, write)
            tasks = [asyncio.ensure_future(sender.send(sending_of(tools, feed))) for feed in (first, second)]
            while not written:
                await asyncio.sleep(0)
            for _ in range(10):
                await asyncio.sleep(0)
            assert len(written) == 1
            assert (first.after, second.after) == (1, 0)  # the second has not even made its piece
            blocked.set()
            while len(written) < 2:
                await asyncio.sleep(0)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
