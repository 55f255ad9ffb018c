"""The feeds that are open, by subscription. There may be a hundred thousand of them: each costs little."""

from collections.abc import Iterator, Sequence
from types import TracebackType

from tailrace.model.subscription import SubscriptionId
from tailrace.subscription.feed import Feed

__all__ = ["OpenFeed", "OpenFeeds"]


class OpenFeeds:
    """Knows the feeds from their opening to their end."""

    def __init__(self) -> None:
        self._feeds: dict[SubscriptionId, tuple[Feed] | dict[Feed, None]] = {}
        """A tuple where there is one, which is small; a dictionary, which is quick, where there are many."""

    def __len__(self) -> int:
        return sum(map(len, self._feeds.values()))

    def __iter__(self) -> Iterator[Feed]:
        return (feed for feeds in list(self._feeds.values()) for feed in tuple(feeds))

    def of(self, subscription_id: SubscriptionId) -> Sequence[Feed]:
        """Return the open feeds of one subscription."""
        return tuple(self._feeds.get(subscription_id, ()))

    def add(self, feed: Feed) -> None:
        """Note that a feed is open."""
        feeds = self._feeds.get(feed.subscription.id)
        if feeds is not None:
            feed.share()
        if isinstance(feeds, dict):
            feeds[feed] = None
        else:
            if feeds is not None:
                feeds[0].share()
            self._feeds[feed.subscription.id] = (feed,) if feeds is None else {feeds[0]: None, feed: None}

    def remove(self, feed: Feed) -> None:
        """Forget a feed that was added, and have nobody evaluate changes for it any more."""
        feed.release()
        feeds = self._feeds[feed.subscription.id]
        if isinstance(feeds, dict):
            del feeds[feed]
            if feeds:
                return
        del self._feeds[feed.subscription.id]


class OpenFeed:
    """A feed that is open for the length of a `with` block."""

    __slots__ = ("_feed", "_feeds")

    def __init__(self, feeds: OpenFeeds, feed: Feed) -> None:
        self._feeds = feeds
        self._feed = feed

    def __enter__(self) -> Feed:
        self._feeds.add(self._feed)
        return self._feed

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._feeds.remove(self._feed)
