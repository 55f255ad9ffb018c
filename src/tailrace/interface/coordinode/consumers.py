"""The consumers of change streams: registered, resumed, acknowledged, held to their bounds, ended."""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from enum import StrEnum
from types import TracebackType

from msgspec import Struct, structs

from tailrace.access.principal import Capability, Principal
from tailrace.clock import Clock
from tailrace.interface.coordinode.options import ConsumerOptions
from tailrace.interface.coordinode.shard import StreamShard
from tailrace.meta.consumer_store import Bounded, Consumer, ConsumerKey, ConsumerStore, Retention, Strict
from tailrace.metrics import Metrics
from tailrace.model.errors import (
    BehindHorizonError,
    ConsumerEndedError,
    ConsumerExistsError,
    ConsumersFullError,
    InvalidRequestError,
    UnknownConsumerError,
)
from tailrace.model.number import Index, Offset, hlc_time_us
from tailrace.subscription.rounds import go_rounds
from tailrace.subscription.uninterrupted import uninterrupted

__all__ = ["Attachment", "ConsumerStanding", "Consumers", "EndReason", "check_retention", "floor_of", "passed"]


class EndReason(StrEnum):
    """Why a consumer ended."""

    CANCELLED = "CANCELLED"
    PROGRESS_LAG = "PROGRESS_LAG_EXCEEDED"
    RETAINED_BYTES = "RETAINED_BYTES_EXCEEDED"
    LIVENESS = "LIVENESS_TIMEOUT"


class ConsumerStanding(Struct, frozen=True):
    """Where a consumer stands: how old and how large is what it has not acknowledged, and how long it was silent."""

    lag_ms: int
    retained_bytes: int
    silent_ms: int


logger = logging.getLogger(__name__)

_ENDED_KEPT_MAX = 10_000
"""Ended consumers that are remembered, so that their incarnations are not used again; the oldest go first."""


def floor_of(consumers: Iterable[Consumer], shard: int) -> Offset | None:
    """Return the oldest change of a shard that a living consumer has not acknowledged; None where there is none."""
    floors = [
        Offset(consumer.checkpoint_offset + 1)
        for consumer in consumers
        if consumer.shard == shard and consumer.ended is None
    ]
    return min(floors, default=None)


class Consumers:
    """All consumers of a server, in memory and in the metadata database; what a method changed is durable on return.

    While a consumer lives, retention keeps what it has not acknowledged. Keep `run` running in a task. All methods are
    called on one event loop.
    """

    def __init__(
        self,
        shards: Mapping[int, StreamShard],
        store: ConsumerStore,
        consumers: Iterable[Consumer],
        options: ConsumerOptions,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        """Know the consumers that the store has; `consumers` are those."""
        self._shards = shards
        self._store = store
        self._options = options
        self._clock = clock
        self._metrics = metrics
        self._consumers = {consumer.key: consumer for consumer in consumers}
        self._heard_s = dict.fromkeys(self._consumers, clock.monotonic_s())
        self._attached: dict[ConsumerKey, set[Attachment]] = {}
        self._change = asyncio.Lock()
        for shard in shards.values():
            self._hold(shard)

    @property
    def options(self) -> ConsumerOptions:
        """Return the settings."""
        return self._options

    @uninterrupted
    async def register(
        self, consumer_id: str, principal: Principal, shard: StreamShard, following: Index, retention: Retention
    ) -> Consumer:
        """Make a consumer that begins with the commit `following`, as the next incarnation of the principal's id.

        Raises:
            InvalidRequestError: The retention is not possible.
            ConsumerExistsError: The id lives.
            ConsumersFullError: There are too many.
            BehindHorizonError: Retention removed the commit meanwhile.
            BeyondHeadError: The log has no such commit yet.
        """
        check_retention(retention, self._options.heartbeat_ms)
        async with self._change:
            known = self._consumers.get((principal.name, consumer_id))
            if known is not None and known.ended is None:
                raise ConsumerExistsError(consumer_id)
            await self._make_room()
            before = await shard.log.commits.offset_before(following)
            incarnation = 1 if known is None else known.incarnation + 1
            checkpoint = Index(following - 1)
            consumer = Consumer(consumer_id, shard.number, incarnation, retention, checkpoint, before, principal.name)
            self._consumers.pop(consumer.key, None)
            self._consumers[consumer.key] = consumer
            self._heard_s[consumer.key] = self._clock.monotonic_s()
            self._hold(shard)  # before anybody waits, so that retention cannot overtake it
            try:
                await self._store.put(consumer)
            except BaseException:
                self._forget(consumer.key, known, shard)
                raise
            logger.info("consumer registered", extra={"consumer": consumer.id, "source": shard.source})
            return consumer

    def find(self, consumer_id: str, incarnation: int, principal: Principal) -> Consumer:
        """Return a living consumer of the principal, or for one with `admin` also someone else's.

        Raises:
            UnknownConsumerError: It has none of that id and incarnation.
            ConsumerEndedError: It has ended, or lives in a later incarnation.
        """
        known = self._consumers.get((principal.name, consumer_id))
        if known is None and principal.may(Capability.ADMIN):
            others = [consumer for consumer in self._consumers.values() if consumer.id == consumer_id]
            known = max(others, key=lambda consumer: consumer.ended is None, default=None)
        if known is None or incarnation > known.incarnation:
            raise UnknownConsumerError(consumer_id)
        if known.ended is not None or incarnation < known.incarnation:
            raise _ended(known, incarnation)
        return known

    def shard_of(self, consumer: Consumer) -> StreamShard:
        """Return the shard that a consumer reads.

        Raises:
            UnknownConsumerError: Its source is no longer configured.
        """
        shard = self._shards.get(consumer.shard)
        if shard is None:
            raise UnknownConsumerError(consumer.id)
        return shard

    @uninterrupted
    async def acknowledge(self, consumer_id: str, incarnation: int, principal: Principal, following: Index) -> None:
        """Move a checkpoint to the commit before `following`; one that is already further stays.

        Raises:
            UnknownConsumerError: There is none of that id and incarnation.
            ConsumerEndedError: It has ended, or lives in a later incarnation.
            BeyondHeadError: The log has no such commit yet.
        """
        async with self._change:
            known = self.find(consumer_id, incarnation, principal)
            self._heard_s[known.key] = self._clock.monotonic_s()
            if following - 1 <= known.checkpoint:
                return
            shard = self.shard_of(known)
            offset = await shard.log.commits.offset_before(following)
            checkpoint = Index(following - 1)
            await self._store.acknowledge(known.key, checkpoint, offset)
            self._consumers[known.key] = structs.replace(known, checkpoint=checkpoint, checkpoint_offset=offset)
            self._hold(shard)

    @uninterrupted
    async def cancel(self, consumer_id: str, incarnation: int, principal: Principal) -> None:
        """End a consumer and its streams.

        Raises:
            UnknownConsumerError: There is none of that id and incarnation.
            ConsumerEndedError: It has ended already, or lives in a later incarnation.
        """
        async with self._change:
            await self._end(self.find(consumer_id, incarnation, principal), EndReason.CANCELLED)

    def attach(self, consumer: Consumer) -> "Attachment":
        """Register an open stream of a consumer within a `with` block."""
        return Attachment(self, consumer)

    async def run(self) -> None:
        """Hold consumers to their bounds until cancelled."""
        await go_rounds(self.check, "consumers", self._options.check_interval_s)

    async def check(self) -> None:
        """End consumers that have passed a bound, and measure what is kept for the others."""
        now_s = self._clock.monotonic_s()
        retained = dict.fromkeys(self._shards, 0)
        living = dict.fromkeys(self._shards, 0)
        for consumer in list(self._consumers.values()):
            if consumer.ended is not None or consumer.shard not in self._shards:
                continue
            if self._attached.get(consumer.key):
                self._heard_s[consumer.key] = now_s
            standing = await self._standing(consumer, now_s)
            reason = passed(consumer.retention, standing, self._options.strict_bytes_max)
            if reason is None:
                living[consumer.shard] += 1
                retained[consumer.shard] = max(retained[consumer.shard], standing.retained_bytes)
                continue
            async with self._change:
                if self._consumers.get(consumer.key) == consumer:  # it has not moved meanwhile
                    await self._end(consumer, reason)
        for number, shard in self._shards.items():
            self._metrics.consumers.labels(shard.source).set(living[number])
            self._metrics.consumer_retained_bytes.labels(shard.source).set(retained[number])

    async def _standing(self, consumer: Consumer, now_s: float) -> ConsumerStanding:
        log = self._shards[consumer.shard].log
        after = consumer.checkpoint_offset
        lag_ms = 0
        if isinstance(consumer.retention, Bounded) and after < log.head:
            try:
                chunk = await log.read(after)
            except BehindHorizonError:  # a hold came too late; its next read tells it
                chunk = None
            if chunk is not None:
                hlc = chunk.batch.column("hlc")[after + 1 - chunk.first].as_py()
                lag_ms = (self._clock.now_us() - hlc_time_us(hlc)) // 1000
        silent_ms = int((now_s - self._heard_s[consumer.key]) * 1000)
        return ConsumerStanding(lag_ms, await log.commits.size_after(after), silent_ms)

    async def _end(self, consumer: Consumer, reason: EndReason) -> None:
        ended = structs.replace(consumer, ended=str(reason))
        await self._store.put(ended)
        self._consumers.pop(consumer.key)
        self._consumers[consumer.key] = ended
        if consumer.shard in self._shards:
            self._hold(self._shards[consumer.shard])
        self._metrics.consumers_ended.labels(str(reason)).inc()
        logger.info("consumer ended", extra={"consumer": consumer.id, "reason": str(reason)})
        for attachment in tuple(self._attached.get(consumer.key, ())):
            attachment.end(_ended(ended, consumer.incarnation))

    async def _make_room(self) -> None:
        living = sum(consumer.ended is None for consumer in self._consumers.values())
        if living >= self._options.consumers_max:
            raise ConsumersFullError(f"there are already {self._options.consumers_max} consumers: cancel some")
        if len(self._consumers) - living >= _ENDED_KEPT_MAX:
            oldest = next(consumer.key for consumer in self._consumers.values() if consumer.ended is not None)
            await self._store.remove(oldest)
            del self._consumers[oldest], self._heard_s[oldest]

    def _forget(self, key: ConsumerKey, known: Consumer | None, shard: StreamShard) -> None:
        """Undo a registration that could not be kept."""
        del self._consumers[key]
        if known is not None:
            self._consumers[key] = known
        self._hold(shard)

    def _hold(self, shard: StreamShard) -> None:
        shard.log.hold(floor_of(self._consumers.values(), shard.number))

    def join(self, attachment: "Attachment") -> None:
        """Take note of an open stream."""
        self._attached.setdefault(attachment.consumer.key, set()).add(attachment)

    def leave(self, attachment: "Attachment") -> None:
        """Take note that a stream is no longer open."""
        key = attachment.consumer.key
        self._heard_s[key] = self._clock.monotonic_s()
        self._attached[key].discard(attachment)
        if not self._attached[key]:
            del self._attached[key]


class Attachment:
    """An open stream of a consumer. While it is open, the consumer counts as alive."""

    def __init__(self, consumers: Consumers, consumer: Consumer) -> None:
        self.consumer = consumer
        self._consumers = consumers
        self._ended: asyncio.Future[ConsumerEndedError] = asyncio.get_running_loop().create_future()

    def __enter__(self) -> "Attachment":
        self._consumers.join(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._consumers.leave(self)

    def end(self, reason: ConsumerEndedError) -> None:
        """Say that the consumer has ended."""
        if not self._ended.done():
            self._ended.set_result(reason)

    async def wait_ended(self) -> ConsumerEndedError:
        """Return once the consumer has ended, with the error that tells why."""
        return await asyncio.shield(self._ended)


def _ended(consumer: Consumer, incarnation: int) -> ConsumerEndedError:
    reason = (
        consumer.ended if consumer.ended is not None and incarnation == consumer.incarnation else "STALE_INCARNATION"
    )
    return ConsumerEndedError(
        consumer.id, incarnation=consumer.incarnation, reason=reason, checkpoint=consumer.checkpoint
    )


def check_retention(retention: Retention, heartbeat_ms: int) -> None:
    """Refuse bounds that cannot be kept.

    Raises:
        InvalidRequestError: A bound is nothing, or a consumer could not be heard in time.
    """
    if isinstance(retention, Strict):
        return
    if retention.progress_lag_ms_max <= 0:
        raise InvalidRequestError("retention.bounded.max_progress_lag_ms must be more than 0")
    if retention.retained_bytes_max <= 0:
        raise InvalidRequestError("retention.bounded.max_retained_bytes must be more than 0")
    liveness_ms = retention.liveness_timeout_ms
    if liveness_ms is not None and liveness_ms <= heartbeat_ms:
        raise InvalidRequestError(
            f"retention.bounded.liveness_timeout_ms must be more than the heartbeat interval of {heartbeat_ms} ms"
        )


def passed(retention: Retention, standing: ConsumerStanding, strict_bytes_max: int | None) -> EndReason | None:
    """Return the bound that a consumer has passed; None while it keeps within all of them."""
    match retention:
        case Strict():
            exceeded = strict_bytes_max is not None and standing.retained_bytes > strict_bytes_max
            return EndReason.RETAINED_BYTES if exceeded else None
        case Bounded(lag_ms_max, bytes_max, liveness_ms):
            if liveness_ms is not None and standing.silent_ms > liveness_ms:
                return EndReason.LIVENESS
            if standing.lag_ms > lag_ms_max:
                return EndReason.PROGRESS_LAG
            return EndReason.RETAINED_BYTES if standing.retained_bytes > bytes_max else None
