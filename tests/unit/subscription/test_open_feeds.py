"""Facts about the feeds that are open."""

import pytest

from feeding import feeding
from tailrace.model.start import Latest


async def test_a_feed_is_known_for_the_length_of_its_block():
    async with feeding() as world:
        one, other = await world.subscribe(), await world.subscribe()
        feed, feeds = world.service.feed, world.service._feeds
        with feed(one.id, Latest()) as first, feed(one.id, Latest()) as second, feed(other.id, Latest()) as third:
            assert (feeds.of(one.id), feeds.of(other.id)) == ((first, second), (third,))
            assert (len(feeds), set(feeds)) == (3, {first, second, third})
        assert (len(feeds), feeds.of(one.id)) == (0, ())


async def test_a_feed_is_forgotten_when_its_block_fails():
    async with feeding() as world:
        subscription = await world.subscribe()
        with pytest.raises(ZeroDivisionError), world.service.feed(subscription.id, Latest()):
            raise ZeroDivisionError
        assert world.service.feeds_open() == 0
