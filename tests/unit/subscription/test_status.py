"""Facts about where subscriptions stand."""

from feeding import ROW_OPS, feeding
from tailrace.subscription.pressure import PressureState
from tailrace.subscription.status import status_of


async def test_a_status_holds_the_cursor_against_the_window_of_the_log():
    async with feeding() as world:
        subscription = await world.subscribe()
        await world.append(*ROW_OPS)
        status = status_of(subscription, world.log, 4)
        assert (status.head, status.horizon, status.pressure.lag) == (3, 1, 3)
        assert status.pressure.state is PressureState.THROTTLE
        assert status_of(subscription, world.log, None).pressure.state is PressureState.HEALTHY
