"""The subscriptions whose feeds a worker runs: kept up to date by the main process, which is asked for what changes."""

import asyncio
from collections.abc import Callable, Mapping

from msgspec import Struct

from tailrace.model.errors import MetadataError, UnknownSubscriptionError
from tailrace.model.number import Offset
from tailrace.model.subscription import Subscription, SubscriptionId
from tailrace.subscription.log_view import LogView
from tailrace.subscription.status import SubscriptionStatus, status_of
from tailrace.worker.message import Acknowledge, Answered, Reason

__all__ = ["Asking", "ServedSubscription", "ServedSubscriptions"]


class Asking:
    """Asks the main process for things, and waits for the answers."""

    def __init__(self, send: Callable[[Struct], None]) -> None:
        self._send = send
        self._asked = 0
        self._waiting: dict[int, asyncio.Future[Answered]] = {}

    async def ask(self, question: Callable[[int], Struct]) -> Answered:
        """Send a question, which is given a number, and return the answer to it."""
        self._asked += 1
        number = self._asked
        answer: asyncio.Future[Answered] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        self._send(question(number))
        try:
            return await answer
        finally:
            del self._waiting[number]

    def answered(self, answer: Answered) -> None:
        """Take an answer; nobody may wait for it any more."""
        waiting = self._waiting.get(answer.ask)
        if waiting is not None and not waiting.done():
            waiting.set_result(answer)


class ServedSubscription:
    """A subscription of which feeds are run here."""

    def __init__(self, asking: Asking, record: Subscription, log: LogView, retention_changes: int | None) -> None:
        self.record = record
        self.feeds = 0
        self._asking = asking
        self._log = log
        self._retention_changes = retention_changes

    def status(self) -> SubscriptionStatus:
        """Return where it stands now."""
        return status_of(self.record, self._log, self._retention_changes)

    async def acknowledge(self, offset: Offset) -> Subscription:
        """Move the cursor to `offset`; durable on return.

        Raises:
            UnknownSubscriptionError: It was closed.
            MetadataError: It could not be written down.
        """
        answer = await self._asking.ask(lambda number: Acknowledge(number, self.record.id, offset))
        if answer.failed is Reason.CLOSED:
            raise UnknownSubscriptionError(f"sub-{self.record.id}")
        if answer.failed is not None:
            raise MetadataError("the acknowledgement was not written down")
        return self.record

    async def snapshot_sent(self, offset: Offset | None) -> None:
        """Do nothing: feeds that begin with a snapshot are run by the main process."""


class ServedSubscriptions:
    """The subscriptions of all feeds that are run here."""

    def __init__(self, logs: Mapping[str, LogView], asking: Asking, retention_changes: int | None) -> None:
        self.logs = logs
        self._asking = asking
        self._retention_changes = retention_changes
        self._served: dict[SubscriptionId, ServedSubscription] = {}

    def subscription(self, subscription_id: SubscriptionId) -> ServedSubscription:
        """Return a subscription.

        Raises:
            UnknownSubscriptionError: No feed of it is run here.
        """
        found = self._served.get(subscription_id)
        if found is None:
            raise UnknownSubscriptionError(f"sub-{subscription_id}")
        return found

    def begin(self, record: Subscription) -> None:
        """Note that one more feed of a subscription is run."""
        served = self._served.get(record.id)
        if served is None:
            log = self.logs[record.source]
            served = self._served[record.id] = ServedSubscription(self._asking, record, log, self._retention_changes)
        served.record = record
        served.feeds += 1

    def end(self, subscription_id: SubscriptionId) -> None:
        """Note that one feed less is run."""
        served = self._served[subscription_id]
        served.feeds -= 1
        if not served.feeds:
            del self._served[subscription_id]

    def change(self, record: Subscription) -> None:
        """Take a subscription as it is now."""
        if record.id in self._served:
            self._served[record.id].record = record
