"""The subscriptions that exist, in memory and in the metadata database, and every durable change of one."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from tailrace.meta.store import MetaStore
from tailrace.model.errors import InvalidRequestError, UnknownSubscriptionError
from tailrace.model.number import Offset
from tailrace.model.query import PreparedQuery
from tailrace.model.subscription import QueryTarget, Subscription, SubscriptionDraft, SubscriptionId

__all__ = ["Registry"]

logger = logging.getLogger(__name__)


class Registry:
    """Knows all subscriptions. Whatever a method changed is durable when it returns. Get one by `open`.

    Only the cursor of a transient subscription is not: nobody asks for it after a restart.

    For tasks of one event loop.
    """

    def __init__(self, store: MetaStore, subscriptions_max: int) -> None:
        self._store = store
        self._subscriptions_max = subscriptions_max
        self._subscriptions: dict[SubscriptionId, Subscription] = {}

    @classmethod
    async def open(cls, store: MetaStore, subscriptions_max: int) -> "Registry":
        """Return a registry of the subscriptions in the metadata database, less those whose streams are over."""
        registry = cls(store, subscriptions_max)
        await store.remove_transient()
        registry._subscriptions = {subscription.id: subscription for subscription in await store.subscriptions()}
        return registry

    def all(self) -> list[Subscription]:
        """Return all subscriptions in order of their numbers."""
        return list(self._subscriptions.values())

    def get(self, subscription_id: SubscriptionId) -> Subscription:
        """Return a subscription as it is now.

        Raises:
            UnknownSubscriptionError: There is none of that number.
        """
        found = self._subscriptions.get(subscription_id)
        if found is None:
            raise UnknownSubscriptionError(f"sub-{subscription_id}")
        return found

    def lag_max(self, heads: Mapping[str, Offset]) -> int:
        """Return the largest lag of any subscription, given the heads of the logs by source name."""
        lags = (heads.get(entry.source, entry.cursor) - entry.cursor for entry in self._subscriptions.values())
        return max(lags, default=0)

    async def add(self, draft: SubscriptionDraft) -> Subscription:
        """Keep a new subscription under the next number.

        Raises:
            InvalidRequestError: There are too many.
        """
        if len(self._subscriptions) >= self._subscriptions_max:
            raise InvalidRequestError(f"there are already {self._subscriptions_max} subscriptions: close some")
        subscription = await self._store.add(draft)
        self._subscriptions[subscription.id] = subscription
        logger.info("subscription made", extra=_described(subscription))
        return subscription

    async def restore(
        self, drafts: Mapping[SubscriptionId, SubscriptionDraft], queries: Sequence[PreparedQuery]
    ) -> None:
        """Keep subscriptions under their numbers, in place of those that have them, and the queries that they are for.

        All of them or, when that fails, none.

        Raises:
            InvalidRequestError: There would be too many.
        """
        if len(self._subscriptions.keys() | drafts.keys()) > self._subscriptions_max:
            raise InvalidRequestError(f"there would be more than {self._subscriptions_max} subscriptions")
        kept = await self._store.put_all(drafts, queries)
        self._subscriptions |= {subscription.id: subscription for subscription in kept}
        self._subscriptions = dict(sorted(self._subscriptions.items()))
        logger.info("subscriptions imported", extra={"count": len(kept)})

    async def remove(self, subscription_id: SubscriptionId) -> None:
        """Forget a subscription; its number stays used.

        Raises:
            UnknownSubscriptionError: There is none of that number.
        """
        removed = self.get(subscription_id)
        await self._store.remove(subscription_id)
        if self._subscriptions.pop(subscription_id, None) is not None:
            logger.info("subscription closed", extra={**_described(removed), "cursor": removed.cursor})

    async def advance(self, subscription_id: SubscriptionId, offset: Offset) -> Subscription:
        """Move the cursor to `offset`; one that is already further stays. Return the subscription as it is then.

        Where a snapshot comes first, the cursor stays until that was wholly sent and its offset is acknowledged.

        Raises:
            UnknownSubscriptionError: There is none of that number.
        """
        subscription = self.get(subscription_id)
        sent = subscription.snapshot_offset
        if subscription.snapshot and (sent is None or offset < sent):
            return subscription
        if offset > subscription.cursor:
            if not subscription.transient:
                await self._store.advance(subscription_id, offset)
            subscription = self._changed(subscription_id, cursor=max(offset, self.get(subscription_id).cursor))
        return await self._set_snapshot(subscription_id, wanted=False) if subscription.snapshot else subscription

    async def reset(self, subscription_id: SubscriptionId, cursor: Offset) -> Subscription:
        """Move the cursor, forwards or back. A snapshot that should have come first is no longer wanted.

        Raises:
            UnknownSubscriptionError: There is none of that number.
        """
        await self._store.reset(subscription_id, cursor)
        logger.info("subscription reset", extra={"subscription": subscription_id, "cursor": cursor})
        self._changed(subscription_id, cursor=cursor)
        return await self._set_snapshot(subscription_id, wanted=False)

    async def snapshot_sent(self, subscription_id: SubscriptionId, offset: Offset | None) -> None:
        """Note where the snapshot belongs that was wholly sent; None when one is begun.

        Raises:
            UnknownSubscriptionError: There is none of that number.
        """
        subscription = self.get(subscription_id)
        if subscription.snapshot and subscription.snapshot_offset != offset:
            await self._set_snapshot(subscription_id, wanted=True, sent=offset)

    async def pause(self, subscription_id: SubscriptionId, *, paused: bool) -> Subscription:
        """Keep whether a subscription is paused.

        Raises:
            UnknownSubscriptionError: There is none of that number.
        """
        await self._store.pause(subscription_id, paused=paused)
        logger.info(
            "subscription paused" if paused else "subscription resumed", extra={"subscription": subscription_id}
        )
        return self._changed(subscription_id, paused=paused)

    async def _set_snapshot(self, number: SubscriptionId, *, wanted: bool, sent: Offset | None = None) -> Subscription:
        await self._store.set_snapshot(number, wanted=wanted, offset=sent)
        return self._changed(number, snapshot=wanted, snapshot_offset=sent)

    def _changed(self, subscription_id: SubscriptionId, **changes: Any) -> Subscription:
        subscription = msgspec.structs.replace(self.get(subscription_id), **changes)
        self._subscriptions[subscription_id] = subscription
        return subscription


def _described(subscription: Subscription) -> dict[str, Any]:
    """Return what diagnostics say of a subscription: no filter, which may hold values of rows."""
    target = subscription.target
    return {
        "subscription": subscription.id,
        "source": subscription.source,
        "target": target.query_id if isinstance(target, QueryTarget) else [table.wire for table in target.tables],
        **({"owner": subscription.owner} if subscription.owner else {}),
        **({"transient": True} if subscription.transient else {}),
    }
