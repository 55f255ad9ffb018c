"""Facts about the figures over all subscriptions."""

from feeding import feeding
from tailrace.model.op import Op
from tailrace.subscription.stats import alerts_of, stats_of


async def test_without_subscriptions_nothing_remains_to_be_lost():
    async with feeding(retention_changes=8) as world:
        stats = stats_of(world.service)
        assert (stats.active_subscriptions, stats.total_lag, stats.max_lag) == (0, 0, 0)
        assert (stats.retention_limit, stats.warn_lag, stats.throttle_lag) == (8, 4, 6)
        assert stats.min_remaining_until_resnapshot == 8
        assert alerts_of(stats) == []


async def test_each_state_is_counted_and_raises_its_alert():
    async with feeding(retention_changes=8) as world:
        lost, throttled, pressed, paused, well = [await world.subscribe() for _ in range(5)]
        await world.append(*[Op.INSERT] * 9)
        world.log.forget_before(2)
        for subscription, offset in ((throttled, 2), (pressed, 4), (paused, 9), (well, 9)):
            await world.service.subscription(subscription.id).acknowledge(offset)
        await world.service.subscription(paused.id).pause()
        stats = stats_of(world.service)
        assert lost.cursor == 0
        assert (stats.active_subscriptions, stats.table_subscriptions, stats.query_subscriptions) == (5, 5, 0)
        assert (stats.total_lag, stats.max_lag) == (9 + 7 + 5, 9)
        assert (stats.resnapshot_subscriptions, stats.paused_subscriptions) == (1, 1)
        assert (stats.pressured_subscriptions, stats.throttle_recommended_subscriptions) == (2, 1)
        assert (stats.earliest_offset, stats.latest_offset, stats.retained_events) == (2, 9, 8)
        assert (stats.dropped_events_total, stats.min_remaining_until_resnapshot) == (1, 0)
        assert [(alert.name, alert.severity, alert.count) for alert in alerts_of(stats)] == [
            ("cdc_resnapshot_required", "critical", 1),
            ("cdc_backpressure_throttle", "warning", 1),
            ("cdc_backpressure_warning", "warning", 1),
        ]


async def test_where_retention_counts_nothing_there_is_no_scale():
    async with feeding() as world:
        await world.subscribe()
        stats = stats_of(world.service)
        assert (stats.retention_limit, stats.warn_lag, stats.throttle_lag) == (None, None, None)
        assert stats.min_remaining_until_resnapshot is None
