"""Facts about streams, without a connection."""

import json
from contextlib import asynccontextmanager

import pytest

from feeding import feeding
from tailrace.delivery.http.options import HttpOptions
from tailrace.delivery.http.streaming import Ending, StreamTools, ending_of
from tailrace.delivery.presenter import Presenter
from tailrace.interface.skeindb.framing import SseFraming
from tailrace.interface.skeindb.stream import Session, Stream
from tailrace.metrics import Metrics
from tailrace.model.op import Op
from tailrace.model.start import After
from tailrace.subscription.access import Scopes


@asynccontextmanager
async def tools_of(**options):
    async with feeding(**options) as world:
        metrics = Metrics()
        yield (
            world,
            StreamTools(Scopes(world.service), Presenter(1 << 20, metrics.encoded_changes), metrics, HttpOptions()),
        )


async def turn(stream):
    """Return the records of one turn as pairs of event and id."""
    await stream.wait()
    data = await stream.take()
    await stream.sent()
    records = [dict(line.split(": ", 1) for line in text.split("\n")) for text in data.decode().split("\n\n")[:-1]]
    return [(record["event"], int(record["id"])) for record in records]


async def test_the_state_comes_before_the_changes_and_its_id_is_where_the_stream_stands():
    async with tools_of(retention_changes=4) as (world, tools):
        subscription = await world.subscribe()
        await world.append(*[Op.INSERT] * 3)
        with world.service.feed(subscription.id, After(1)) as feed:
            assert await turn(Stream(tools, feed, SseFraming())) == [("backpressure", 1), ("insert", 2), ("insert", 3)]


async def test_a_lost_place_is_told_with_an_id_behind_which_nothing_is_missing():
    async with tools_of() as (world, tools):
        subscription = await world.subscribe()
        await world.append(*[Op.INSERT] * 9)
        with world.service.feed(subscription.id, After(2)) as feed:
            world.log.forget_before(6)
            stream = Stream(tools, feed, SseFraming())
            # Resuming after the first of the two would be told again that changes are missing.
            assert await turn(stream) == [("backpressure", 2), ("resnapshot", 5)]
            assert ending_of(stream.ending) is Ending.RESNAPSHOT


@pytest.mark.parametrize("auto_ack", [False, True])
async def test_an_ending_that_comes_while_nobody_waits_is_not_missed(auto_ack):
    async with tools_of() as (world, tools):
        subscription = await world.subscribe(auto_ack=auto_ack)
        written = []

        async def write(data):
            written.append(json.loads(data.decode().split("data: ")[1]))
            await world.service.subscription(subscription.id).close()

        await world.append(Op.INSERT)
        with world.service.feed(subscription.id, After(0)) as feed:
            assert await Session(tools, SseFraming(), write).serve(feed) is Ending.CLOSED
        assert [event["seq"] for event in written] == [1]
