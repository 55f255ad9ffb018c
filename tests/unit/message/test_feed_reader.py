"""What becomes of subscriptions of sinks that a server feeds."""

import asyncio

import pytest

from feeding import ROW_OPS, feeding
from tailrace.clock import SystemClock
from tailrace.message.feed_reader import FeedReader
from tailrace.message.sink import SinkConfig
from tailrace.meta.sink_store import SinkStore
from tailrace.model.errors import UnknownSubscriptionError
from tailrace.model.start import Latest
from tailrace.model.subscription import FilterOptions, Format, Include, SourceTarget, SubscribeRequest, sub_id_of


@pytest.mark.parametrize("closed", [False, True], ids=["there", "closed before"])
async def test_a_sink_of_another_source_leaves_no_subscription_behind(tmp_path, closed):
    store = SinkStore.open(f"sqlite:///{tmp_path / 'sinks.db'}", SystemClock())
    async with feeding() as fed:
        former = await fed.service.subscribe(
            SubscribeRequest(
                SourceTarget("app"),
                filter=FilterOptions(ROW_OPS),
                include=Include(),
                format=Format.PLAIN_JSON,
                start=Latest(),
            )
        )
        if closed:
            await fed.service.subscription(former.id).close()
        store.put("s", source="other", url="redis://h/0", subscription=sub_id_of(former.id))
        reader = FeedReader(fed.service, asyncio.get_running_loop(), "s", SinkConfig("redis://h/0", "app"), store)
        await asyncio.to_thread(reader.open, 0)
        with pytest.raises(UnknownSubscriptionError):
            fed.service.subscription(former.id)
        assert store.get("s").subscription != sub_id_of(former.id)
        await asyncio.to_thread(reader.close)
    store.close()
