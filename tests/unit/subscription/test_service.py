"""Facts about the subscription service."""

import asyncio

import pytest

from feeding import feeding, schema_of
from tailrace.model.errors import (
    BeyondHeadError,
    InvalidRequestError,
    LogClosedError,
    UnknownSourceError,
    UnknownSubscriptionError,
    UnknownTableError,
)
from tailrace.model.op import Op
from tailrace.model.start import After, Latest
from tailrace.model.subscription import FilterOptions, Format, Include, SubscribeRequest, TableTarget
from tailrace.model.table import TableName


async def test_a_subscription_begins_at_the_head():
    async with feeding() as world:
        await world.append(Op.INSERT, Op.INSERT)
        subscription = await world.subscribe()
        assert subscription.cursor == 2
        assert world.service.subscriptions() == [subscription]


async def test_a_table_is_found_by_each_name_that_the_wires_may_give_it():
    async with feeding() as world:
        for schema in (schema_of("a.b"), schema_of("b", space="a"), schema_of("c", space="x.y")):
            await world.log.put_schema(schema)
        assert world.service.table("app", "a.b").table == TableName("app", "a.b")
        assert world.service.table("app", "x.y.c").table == TableName("app", "c", "x.y")
        assert world.service.table("app", "users").table == TableName("app", "users")


@pytest.mark.parametrize(("source", "table"), [("app", "nobody"), ("app", "")])
async def test_an_unknown_table_is_refused(source, table):
    async with feeding() as world:
        with pytest.raises(UnknownTableError):
            world.service.table(source, table)


async def test_an_unknown_source_is_not_called_an_unknown_table():
    async with feeding() as world:
        with pytest.raises(UnknownSourceError, match="'nowhere'"):
            world.service.table("nowhere", "users")


async def test_tables_of_one_source_only():
    async with feeding() as world:
        target = TableTarget((TableName("app", "users"), TableName("other", "users")))
        with pytest.raises(InvalidRequestError, match="one source"):
            await world.service.subscribe(
                SubscribeRequest(
                    target, filter=FilterOptions((Op.INSERT,)), include=Include(), format=Format.PLAIN_JSON
                )
            )


async def test_there_are_no_more_subscriptions_than_allowed():
    async with feeding(subscriptions_max=1) as world:
        first = await world.subscribe()
        with pytest.raises(InvalidRequestError, match="close some"):
            await world.subscribe()
        await world.service.subscription(first.id).close()
        assert (await world.subscribe()).id == first.id + 1


async def test_an_acknowledgement_moves_the_cursor_forward_only():
    async with feeding() as world:
        subscription = await world.subscribe()
        await world.append(*[Op.INSERT] * 5)
        assert (await world.service.subscription(subscription.id).acknowledge(3)).cursor == 3
        assert (await world.service.subscription(subscription.id).acknowledge(1)).cursor == 3
        assert world.service.subscription(subscription.id).status().pressure.lag == 2
        assert world.service.lag_max() == 2


async def test_concurrent_acknowledgements_end_at_the_furthest():
    async with feeding() as world:
        subscription = await world.subscribe()
        await world.append(*[Op.INSERT] * 50)
        await asyncio.gather(
            *(world.service.subscription(subscription.id).acknowledge(offset) for offset in range(50, 0, -1))
        )
        assert world.service.subscription(subscription.id).record.cursor == 50


async def test_what_the_log_has_not_reached_cannot_be_acknowledged_or_begun_at():
    async with feeding() as world:
        subscription = await world.subscribe()
        await world.append(Op.INSERT)
        with pytest.raises(BeyondHeadError) as caught:
            await world.service.subscription(subscription.id).acknowledge(2)
        assert (caught.value.requested, caught.value.head) == (2, 1)
        with pytest.raises(BeyondHeadError), world.service.feed(subscription.id, After(2)):
            pass


async def test_a_closed_subscription_is_unknown_everywhere():
    async with feeding() as world:
        subscription = await world.subscribe()
        await world.service.subscription(subscription.id).close()
        for call in (
            lambda: world.service.subscription(subscription.id).acknowledge(0),
            lambda: world.service.subscription(subscription.id).close(),
        ):
            with pytest.raises(UnknownSubscriptionError):
                await call()
        with pytest.raises(UnknownSubscriptionError):
            world.service.subscription(subscription.id).status()
        with pytest.raises(UnknownSubscriptionError), world.service.feed(subscription.id, Latest()):
            pass


async def test_a_service_that_stops_gives_no_more_feeds():
    async with feeding() as world:
        subscription = await world.subscribe()
        world.service.stop()
        with pytest.raises(LogClosedError), world.service.feed(subscription.id, Latest()):
            pass


async def test_subscriptions_and_cursors_survive_a_restart(tmp_path):
    url = f"sqlite:///{tmp_path}/meta.db"
    async with feeding(url) as world:
        kept, closed = await world.subscribe(), await world.subscribe()
        await world.append(Op.INSERT)
        await world.service.subscription(kept.id).acknowledge(1)
        await world.service.subscription(closed.id).close()
        log = world.log
    async with feeding(url, log=log) as world:
        (found,) = world.service.subscriptions()
        assert (found.id, found.cursor) == (kept.id, 1)
        assert (await world.subscribe()).id == closed.id + 1


async def test_pause_and_auto_ack_survive_a_restart(tmp_path):
    url = f"sqlite:///{tmp_path}/meta.db"
    async with feeding(url) as world:
        paused, resumed = await world.subscribe(auto_ack=True), await world.subscribe()
        await world.service.subscription(paused.id).pause()
        await world.service.subscription(resumed.id).pause()
        await world.service.subscription(resumed.id).resume()
        log = world.log
    async with feeding(url, log=log) as world:
        found = [(entry.paused, entry.auto_ack) for entry in world.service.subscriptions()]
        assert found == [(True, True), (False, False)]


async def test_a_paused_subscription_counts_on_and_loses_its_place_like_any_other():
    async with feeding(retention_changes=4) as world:
        subscription = await world.subscribe()
        await world.service.subscription(subscription.id).pause()
        await world.append(*[Op.INSERT] * 3)
        status = world.service.subscription(subscription.id).status()
        assert (status.pressure.state, status.pressure.lag, status.pressure.remaining) == ("paused", 3, 1)
        world.log.forget_before(3)
        assert world.service.subscription(subscription.id).status().pressure.state == "resnapshot_required"
        await world.service.subscription(subscription.id).acknowledge(2)
        assert world.service.subscription(subscription.id).status().pressure.state == "paused"
        await world.service.subscription(subscription.id).resume()
        assert world.service.subscription(subscription.id).status().pressure.state == "healthy"
