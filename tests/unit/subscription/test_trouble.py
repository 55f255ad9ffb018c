"""Facts about what is said of slow subscribers and of retention."""

import logging

from feeding import ROW_OPS, feeding
from tailrace.subscription.trouble import Trouble


def said(caplog):
    return [(record.message, getattr(record, "state", "")) for record in caplog.records if "trouble" in record.name]


async def test_a_state_is_said_once_when_it_is_reached_and_once_when_it_is_left(caplog):
    caplog.set_level(logging.INFO)
    async with feeding() as world:
        subscription = await world.subscribe()
        trouble = Trouble({"app": world.log}, world.service.subscriptions, 6)
        trouble.look_at(world.service.subscriptions())
        assert said(caplog) == []
        await world.append(*ROW_OPS)
        for _ in range(3):
            trouble.look_at(world.service.subscriptions())
        assert said(caplog) == [("subscription falls behind", "pressure")]
        await world.append(*ROW_OPS)
        trouble.look_at(world.service.subscriptions())
        assert said(caplog)[1:] == [("subscription falls behind", "throttle")]
        await world.service.subscription(subscription.id).acknowledge(world.log.head)
        for _ in range(2):
            trouble.look_at(world.service.subscriptions())
        assert said(caplog)[2:] == [("subscription caught up", "healthy")]


async def test_a_paused_subscription_is_not_called_slow(caplog):
    caplog.set_level(logging.INFO)
    async with feeding() as world:
        subscription = await world.subscribe()
        await world.service.subscription(subscription.id).pause()
        await world.append(*ROW_OPS)
        Trouble({"app": world.log}, world.service.subscriptions, 3).look_at(world.service.subscriptions())
        assert said(caplog) == []
