"""The ranges of all tables that pullers have asked for, and the pullers: in memory and in the metadata database."""

import asyncio
import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from msgspec import structs

from tailrace.clock import Clock
from tailrace.interface.jimdb.errors import (
    NotRegisteredError,
    OutOfBoundError,
    PullerBusyError,
    RegistrationsFullError,
    StaleEpochError,
    UnknownRangeError,
)
from tailrace.interface.jimdb.options import RangeOptions
from tailrace.interface.jimdb.shard import RangeShard
from tailrace.meta.key_range import Epoch, KeyRange, PullerKey, RangedTable, Registration
from tailrace.meta.range_store import KeptRanges, RangeStore
from tailrace.metrics import Metrics
from tailrace.model.errors import InvalidRequestError
from tailrace.model.number import Offset
from tailrace.model.table import TableName
from tailrace.subscription.rounds import go_rounds
from tailrace.subscription.uninterrupted import uninterrupted

__all__ = ["HOLDER", "Ranges", "range_floor"]

logger = logging.getLogger(__name__)

HOLDER = "pullers"
"""Under which name pullers hold a log's retention back."""

_NAME_MAX = 255


def range_floor(stored: KeptRanges, source: str, oldest_us: int) -> Offset | None:
    """Return the oldest change of a source that a puller heard since then has not got; None where there is none."""
    tables = {table.id for table in stored.tables if table.table.source == source}
    ranges = {one.id for one in stored.ranges if one.table_id in tables}
    return _floor(one for one in stored.registrations if one.range_id in ranges and one.heard_time_us >= oldest_us)


class Ranges:
    """Ranges and pullers. What a method changed is durable on return, but for how far a puller is: that follows soon.

    While a puller is heard and not too far behind, retention keeps what it has not got. Keep `run` running in a task.
    All methods are called on one event loop.
    """

    def __init__(
        self,
        shards: Mapping[str, RangeShard],
        store: RangeStore,
        stored: KeptRanges,
        options: RangeOptions,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        """Know what the store has; `stored` is that."""
        self._shards = shards
        self._store = store
        self._options = options
        self._clock = clock
        self._metrics = metrics
        self._tables = {table.id: table for table in stored.tables}
        self._ranges = {one.id: one for one in stored.ranges}
        self._pullers = {one.key: one for one in stored.registrations}
        self._moved: set[PullerKey] = set()
        self._lapsed: set[PullerKey] = set()
        self._pulling: set[PullerKey] = set()
        self._change = asyncio.Lock()
        for shard in shards.values():
            self._hold(shard)

    # ---- tables and ranges

    def table_of(self, within: KeyRange) -> RangedTable:
        """Return the table of a range."""
        return self._tables[within.table_id]

    def shard(self, source: str) -> RangeShard:
        """Return a source that is configured."""
        return self._shards[source]

    def shard_of(self, table: RangedTable) -> RangeShard:
        """Return the source of a table."""
        return self._shards[table.table.source]

    def ranges_of(self, name: TableName) -> tuple[RangedTable, list[KeyRange]] | None:
        """Return a table and its ranges in order of keys; None where it has none yet."""
        table = next((table for table in self._tables.values() if table.table == name), None)
        if table is None:
            return None
        ranges = [one for one in self._ranges.values() if one.table_id == table.id]
        return table, sorted(ranges, key=lambda one: one.start)

    def get(self, range_id: int) -> KeyRange:
        """Return a range as it is now.

        Raises:
            UnknownRangeError: There is none of that number.
        """
        found = self._ranges.get(range_id)
        if found is None or self._tables[found.table_id].table.source not in self._shards:
            raise UnknownRangeError(range_id)
        return found

    def check(self, known: KeyRange, epoch: Epoch) -> None:
        """Refuse a request that is about another state of a range.

        Raises:
            StaleEpochError: The range was split meanwhile, or never was so.
        """
        if epoch == known.epoch:
            return
        following = Epoch(epoch.conf_ver, epoch.version + 1)
        children = (one for one in self._ranges.values() if one.parent == known.id)
        child_range = next((child for child in children if child.born.epoch == following), None)
        if child_range is None:
            raise StaleEpochError(known, None)
        raise StaleEpochError(known.before(child_range), child_range.born)

    @uninterrupted
    async def make(self, name: TableName, key: tuple[str, ...], cuts: Iterable[bytes]) -> None:
        """Give a table ranges that end with these keys, if it has none."""
        async with self._change:
            if self.ranges_of(name) is not None:
                return
            table, ranges = await self._store.make(name, key, list(cuts))
            self._tables[table.id] = table
            self._ranges |= {one.id: one for one in ranges}

    @uninterrupted
    async def split(self, range_id: int, epoch: Epoch, last: bytes) -> tuple[KeyRange, KeyRange]:
        """Split a range behind the key `last`; the pullers of the new range are those of the old one.

        Raises:
            UnknownRangeError: There is no such range.
            StaleEpochError: It was split meanwhile.
            OutOfBoundError: The key is none of the range.
        """
        async with self._change:
            parent = self.get(range_id)
            self.check(parent, epoch)
            if not parent.contains(last) or last + b"\x00" >= parent.end:
                raise OutOfBoundError(last, parent)
            await self._keep_moved()
            left, right, inherited = await self._store.split(parent, last)
            self._ranges |= {left.id: left, right.id: right}
            self._pullers |= {puller.key: puller for puller in inherited}
            self._hold(self.shard_of(self._tables[parent.table_id]))
            return left, right

    @uninterrupted
    async def retire(self, table: RangedTable) -> None:
        """Forget the ranges of a table and their pullers: it was dropped, or has another key now."""
        async with self._change:
            if table.id not in self._tables:
                return
            await self._store.remove(table.id)
            gone = {one.id for one in self._ranges.values() if one.table_id == table.id}
            self._forget([key for key in self._pullers if key[0] in gone])
            self._ranges = {number: one for number, one in self._ranges.items() if number not in gone}
            del self._tables[table.id]
            self._hold(self.shard_of(table))
            logger.info("ranges retired", extra={"table": table.table.wire, "source": table.table.source})

    # ---- pullers

    @uninterrupted
    async def register(self, within: KeyRange, owner: str, name: str) -> Registration:
        """Make a puller known that begins at the head of the log; the same one again begins where it first began.

        It starts over where the log no longer has what follows that.

        Raises:
            InvalidRequestError: The name is empty or too long.
            RegistrationsFullError: There are too many.
        """
        if not 0 < len(name) <= _NAME_MAX or not name.isprintable() or name != name.strip():
            raise InvalidRequestError(
                f"subscriber_name has 1 to {_NAME_MAX} printable characters, without leading or trailing spaces"
            )
        async with self._change:
            shard = self.shard_of(self.table_of(self.get(within.id)))
            key = within.id, owner, name
            known, now_us = self._pullers.get(key), self._clock.now_us()
            if known is not None and shard.log.horizon - 1 <= known.init_version <= shard.log.head:
                registration = structs.replace(known, log_index=known.init_version, heard_time_us=now_us)
            else:
                await self._make_room(known)
                registration = Registration(*key, shard.log.head, shard.log.head, heard_time_us=now_us)
            self._pullers[key] = registration
            self._lapsed.discard(key)
            self._hold(shard)  # before anybody waits, so that retention cannot overtake it
            try:
                await self._store.put(registration)
            except BaseException:
                if known is None:
                    del self._pullers[key]
                else:
                    self._pullers[key] = known
                self._hold(shard)
                raise
            return registration

    @uninterrupted
    async def unregister(self, within: KeyRange, owner: str, name: str) -> None:
        """Forget a puller; the log is no longer kept for it.

        Raises:
            NotRegisteredError: It is not there.
        """
        async with self._change:
            puller = self.puller(within, owner, name)
            await self._store.unregister(puller.key)
            self._forget([puller.key])
            self._hold(self.shard_of(self.table_of(within)))

    def puller(self, within: KeyRange, owner: str, name: str) -> Registration:
        """Return a puller.

        Raises:
            NotRegisteredError: It has not registered with the range.
        """
        found = self._pullers.get((within.id, owner, name))
        if found is None:
            raise NotRegisteredError(within.id, name)
        return found

    @contextmanager
    def pulling(self, puller: Registration) -> Iterator[None]:
        """Hold the exclusive right to pull for a puller within a `with` block.

        Raises:
            PullerBusyError: Someone else is.
        """
        if puller.key in self._pulling:
            raise PullerBusyError(puller.range_id, puller.name)
        self._pulling.add(puller.key)
        try:
            yield
        finally:
            self._pulling.discard(puller.key)

    def heard(self, puller: Registration, log_index: Offset | None = None) -> None:
        """Take note that a puller lives, and has got everything up to an offset of the log, which follows soon."""
        known = self._pullers.get(puller.key)
        if known is None:
            return
        index = known.log_index if log_index is None else max(log_index, known.log_index)
        self._pullers[puller.key] = structs.replace(known, log_index=index, heard_time_us=self._clock.now_us())
        self._moved.add(puller.key)
        if puller.key in self._lapsed:
            self._lapsed.discard(puller.key)
            self._hold(self.shard_of(self._tables[self._ranges[puller.range_id].table_id]))

    @uninterrupted
    async def begun(self, puller: Registration, version: Offset, schema: int) -> None:
        """Note which copy of the rows a puller is given from now on."""
        async with self._change:
            known = self._pullers.get(puller.key)
            if known is not None:
                changed = structs.replace(known, snapshot_version=version, snapshot_schema=schema)
                await self._store.put(changed)
                self._pullers[puller.key] = changed

    # ---- bounds

    async def run(self) -> None:
        """Hold pullers to their bounds, and keep how far they are, until cancelled."""
        await go_rounds(self.look, "pullers", self._options.check_interval_s)

    async def look(self) -> None:
        """Keep how far pullers are; let go of the log of those that passed a bound, and measure what is kept."""
        async with self._change:
            await self._keep_moved()
        for name, shard in self._shards.items():
            pullers = [one for one in self._pullers.values() if self._shard_of(one) is shard]
            retained = await self._let_go(shard, pullers)
            self._hold(shard)
            self._metrics.pullers.labels(name).set(len(pullers))
            self._metrics.puller_retained_bytes.labels(name).set(retained)

    async def _let_go(self, shard: RangeShard, pullers: Iterable[Registration]) -> int:
        """Let go of the log of pullers that passed a bound; return how many bytes are kept for the others."""
        retained: int | None = None
        for puller in sorted(pullers, key=lambda one: one.log_index):
            if puller.key in self._lapsed:
                continue
            if self._is_past(puller, shard):
                self._lapse(puller)
            elif retained is None:  # no more than that is kept for whoever is further
                size_bytes = await shard.log.commits.size_after(puller.log_index)
                if self._options.retained_bytes_max is not None and size_bytes > self._options.retained_bytes_max:
                    self._lapse(puller)
                else:
                    retained = size_bytes
        return retained or 0

    def _is_past(self, puller: Registration, shard: RangeShard) -> bool:
        """Tell whether a puller was silent for too long, or the log no longer has what it lacks."""
        silent_s = (self._clock.now_us() - puller.heard_time_us) / 1e6
        silent_s_max = self._options.silent_s_max
        return (silent_s_max is not None and silent_s > silent_s_max) or puller.log_index + 1 < shard.log.horizon

    def _lapse(self, puller: Registration) -> None:
        """Let go of what is kept for a puller, if it has not moved meanwhile."""
        if puller.key not in self._lapsed and self._pullers.get(puller.key) == puller:
            self._lapsed.add(puller.key)
            logger.info("puller lapsed", extra={"subscriber": puller.name, "range": puller.range_id})

    async def _keep_moved(self) -> None:
        moved, self._moved = self._moved, set()
        pullers = [self._pullers[key] for key in moved if key in self._pullers]
        if not pullers:
            return
        try:
            await self._store.move(pullers)
        except BaseException:
            self._moved |= moved
            raise

    async def _make_room(self, known: Registration | None) -> None:
        """Let one more puller be, forgetting the one that was silent for the longest if it holds nothing any more."""
        if known is not None or len(self._pullers) < self._options.registrations_max:
            return
        lapsed = [self._pullers[key] for key in self._lapsed if key in self._pullers]
        if not lapsed:
            raise RegistrationsFullError(
                f"there are already {self._options.registrations_max} subscribers: unregister some"
            )
        oldest = min(lapsed, key=lambda puller: puller.heard_time_us)
        await self._store.unregister(oldest.key)
        self._forget([oldest.key])

    def _forget(self, keys: Iterable[PullerKey]) -> None:
        for key in keys:
            self._pullers.pop(key, None)
            self._lapsed.discard(key)

    def _shard_of(self, puller: Registration) -> RangeShard | None:
        found = self._ranges.get(puller.range_id)
        return None if found is None else self._shards.get(self._tables[found.table_id].table.source)

    def _hold(self, shard: RangeShard) -> None:
        held = (puller for key, puller in self._pullers.items() if key not in self._lapsed)
        shard.log.hold(_floor(one for one in held if self._shard_of(one) is shard), holder=HOLDER)


def _floor(pullers: Iterable[Registration]) -> Offset | None:
    return min((Offset(puller.log_index + 1) for puller in pullers), default=None)
