"""One subscription and all that can be done with it. Who may have its handle is decided in `subscription.access`.

What is changed is changed in the metadata database first and in memory then; so a handle never shows what a restart
would take back. Only the cursor of a transient subscription is in memory alone: nobody asks for it after a restart.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from tailrace.meta.store import MetaStore
from tailrace.model.errors import BeyondHeadError, UnknownSubscriptionError, UnknownTableError
from tailrace.model.number import Offset
from tailrace.model.start import CursorStart
from tailrace.model.subscription import Subscription, SubscriptionId
from tailrace.subscription.feed import Feed
from tailrace.subscription.log_view import LogView
from tailrace.subscription.place import find_place
from tailrace.subscription.status import SubscriptionStatus, status_of

__all__ = ["HandleTools", "SubscriptionHandle", "log_of"]

logger = logging.getLogger(__name__)


class HandleTools(Struct, frozen=True):
    """What all handles of a service share."""

    store: MetaStore
    logs: Mapping[str, LogView]
    feeds: Callable[[SubscriptionId], Sequence[Feed]]
    """Returns the open feeds of a subscription."""

    retention_changes: int | None
    forget: Callable[[SubscriptionId], None]
    """Has the service forget a number, and end the handle that has it."""


class SubscriptionHandle:
    """One subscription. Whatever a method changed is durable when it returns. For tasks of one event loop.

    A handle is of one subscription, not of its number: when the subscription was closed, or replaced by an imported one
    of the same number, every method raises `UnknownSubscriptionError`, whoever has the number then.
    """

    __slots__ = ("_ended", "_tools", "record")

    def __init__(self, tools: HandleTools, record: Subscription) -> None:
        self._tools = tools
        self._ended = False
        self.record = record
        """The subscription as it is now; a subscription that changes is another object."""

    @property
    def id(self) -> SubscriptionId:
        """Return its number."""
        return self.record.id

    def status(self) -> SubscriptionStatus:
        """Return where it stands now."""
        self._check()
        return status_of(self.record, log_of(self._tools.logs, self.record), self._tools.retention_changes)

    async def acknowledge(self, offset: Offset) -> Subscription:
        """Move the cursor to `offset`; one that is already further stays. Return the subscription as it is then.

        Where a snapshot comes first, the cursor stays until that was wholly sent and its offset is acknowledged.

        Raises:
            BeyondHeadError: The log has no such change yet.
        """
        self._check()
        record, head = self.record, log_of(self._tools.logs, self.record).head
        if offset > head:
            raise BeyondHeadError(requested=offset, head=head)
        sent = record.snapshot_offset
        if record.snapshot and (sent is None or offset < sent):
            return record
        if offset > record.cursor:
            if not record.transient:
                await self._tools.store.advance(self.id, offset)
            record = self._changed(cursor=max(offset, self.record.cursor))
        return await self._set_snapshot(wanted=False) if record.snapshot else record

    async def snapshot_sent(self, offset: Offset | None) -> None:
        """Note where the snapshot belongs that was wholly sent; None when one is begun."""
        self._check()
        if self.record.snapshot and self.record.snapshot_offset != offset:
            await self._set_snapshot(wanted=True, sent=offset)

    async def pause(self) -> Subscription:
        """Hold back changes until `resume`. Cursor and horizon go on counting. Feeds notice at once."""
        return await self._pause(paused=True)

    async def resume(self) -> Subscription:
        """Deliver changes again, those of the pause first."""
        return await self._pause(paused=False)

    async def reset(self, start: CursorStart) -> Subscription:
        """Move the cursor to a place in the log, forwards or back. Open feeds go on from where they are.

        A snapshot that should have come first is no longer wanted.

        Raises:
            BeyondHeadError: The place lies beyond the newest change.
        """
        self._check()
        cursor = await find_place(start, log_of(self._tools.logs, self.record))
        await self._tools.store.reset(self.id, cursor)
        logger.info("subscription reset", extra={"subscription": self.id, "cursor": cursor})
        self._changed(cursor=cursor)
        return await self._set_snapshot(wanted=False)

    async def close(self) -> None:
        """Remove the subscription and end its feeds; its number stays used."""
        self._check()
        await self._tools.store.remove(self.id)
        # By number: the database has forgotten one that was imported under the same number meanwhile, too.
        self._tools.forget(self.id)

    def end(self) -> None:
        """Note that the subscription is gone: its feeds end, and whoever still has the handle is refused."""
        self._ended = True
        for feed in self._tools.feeds(self.id):
            feed.end(UnknownSubscriptionError(f"sub-{self.id}"))

    async def _pause(self, *, paused: bool) -> Subscription:
        self._check()
        if self.record.paused == paused:
            return self.record
        await self._tools.store.pause(self.id, paused=paused)
        logger.info("subscription paused" if paused else "subscription resumed", extra={"subscription": self.id})
        record = self._changed(paused=paused)
        for feed in self._tools.feeds(self.id):
            feed.pause(paused=paused)
        return record

    async def _set_snapshot(self, *, wanted: bool, sent: Offset | None = None) -> Subscription:
        await self._tools.store.set_snapshot(self.id, wanted=wanted, offset=sent)
        return self._changed(snapshot=wanted, snapshot_offset=sent)

    def _changed(self, **changes: Any) -> Subscription:
        self._check()
        self.record = msgspec.structs.replace(self.record, **changes)
        for feed in self._tools.feeds(self.id):
            feed.change(self.record)
        return self.record

    def _check(self) -> None:
        if self._ended:
            raise UnknownSubscriptionError(f"sub-{self.id}")


def log_of(logs: Mapping[str, LogView], subscription: Subscription) -> LogView:
    """Return the log that a subscription reads.

    Raises:
        UnknownTableError: Its source is not there any more.
    """
    log = logs.get(subscription.source)
    if log is None:
        raise UnknownTableError(subscription.source, subscription.target.tables[0].wire)
    return log
