"""What pullers call: ranges, rows and changes as one principal may see them."""

import asyncio
from collections.abc import Sequence

from msgspec import structs

from tailrace.access.principal import Capability, Principal
from tailrace.interface.jimdb.bounds import cut_of, interval_after, key_of
from tailrace.interface.jimdb.errors import OutOfBoundError, UnknownRangeError
from tailrace.interface.jimdb.log_page import TableDropped, TableTruncated, read_changes
from tailrace.interface.jimdb.options import PullOptions, RangeOptions
from tailrace.interface.jimdb.ranges import Ranges
from tailrace.interface.jimdb.row import PulledLog, PulledRows
from tailrace.interface.jimdb.shard import RangeShard
from tailrace.interface.jimdb.snapshot_page import RangePage, read_range
from tailrace.meta.key_range import Epoch, KeyRange, Registration
from tailrace.model.errors import (
    BehindHorizonError,
    CaptureDisabledError,
    InvalidRequestError,
    InvalidValueError,
    UnknownTableError,
)
from tailrace.model.key_interval import KeyInterval
from tailrace.model.number import Offset
from tailrace.model.table import TableSchema
from tailrace.subscription.access import Scopes

__all__ = ["PullService"]

_SCHEMA_CHANGES_MAX = 10
"""So often a copy is begun again because the schema changes meanwhile."""


_SAMPLES = 64
"""Keys that are looked at to find the middle of a range."""


class PullService:
    """Answers pullers. A range of a table that a principal may not see is unknown to it. For one event loop."""

    def __init__(
        self,
        ranges: Ranges,
        scopes: Scopes,
        options: RangeOptions,
        pull: PullOptions,
        *,
        capture_enabled: bool = True,
    ) -> None:
        self._ranges = ranges
        self._scopes = scopes
        self._options = options
        self._pull = pull
        self._capture_enabled = capture_enabled
        self._stopping = False
        self._rows_read: dict[int, int] = {}
        """Rows that are read at once of ranges whose rows are so large that an answer takes fewer than it may."""

    def stop(self) -> None:
        """Let nobody wait any longer: answers that wait for changes come at once."""
        self._stopping = True

    def schema_of(self, within: KeyRange) -> TableSchema:
        """Return the newest schema of the table of a range.

        Raises:
            UnknownRangeError: There is none.
        """
        table = self._ranges.table_of(within)
        latest = self._ranges.shard_of(table).log.latest_schema(table.table)
        if latest is None:
            raise UnknownRangeError(within.id)
        return latest[1]

    def shard_of(self, within: KeyRange) -> RangeShard:
        """Return the source that a range is of."""
        return self._ranges.shard_of(self._ranges.table_of(within))

    async def ranges(self, principal: Principal, namespace: str, wire: str) -> tuple[TableSchema, Sequence[KeyRange]]:
        """Return a table and its ranges in order of keys; they are made where it has none.

        Raises:
            UnknownSourceError, UnknownTableError: There is no such table.
            PermissionDeniedError: The principal may not see it.
            InvalidRequestError: It has no key that identifies its rows.
        """
        self._require_capture()
        scoped = self._scopes.of(principal)
        schema = scoped.table(scoped.source(namespace), wire)
        if not schema.identity.is_unique:
            raise InvalidRequestError(f"table {wire} has no key that identifies its rows, so it has no ranges")
        found = self._ranges.ranges_of(schema.table)
        if found is not None and found[0].key != schema.key:
            await self._ranges.retire(found[0])
            found = None
        if found is None:
            await self._ranges.make(schema.table, schema.key, await self._cuts(schema))
            found = self._ranges.ranges_of(schema.table)
            assert found is not None
        return schema, found[1]

    async def split(self, principal: Principal, range_id: int, epoch: Epoch, last: bytes) -> Sequence[KeyRange]:
        """Split a range behind a key, or where none is given, in the middle of its rows; return both halves.

        Raises:
            InvalidRequestError: The keys of the table cannot be divided, or the range has too few rows.
            OutOfBoundError: The key is none of the range.
        """
        principal.require(Capability.ADMIN)
        within = self._find(principal, range_id, epoch)
        schema = self.schema_of(within)
        if not await self._is_divisible(schema):
            raise InvalidRequestError("the database does not order the keys of this table by their bytes")
        if last:
            await self._require_key(within, schema, last)
        else:
            last = await self._middle(within, schema)
        return await self._ranges.split(range_id, epoch, last)

    async def register(self, principal: Principal, range_id: int, epoch: Epoch, name: str) -> Registration:
        """Make a puller known, and keep the log for it from now on."""
        return await self._ranges.register(self._find(principal, range_id, epoch), principal.name, name)

    async def unregister(self, principal: Principal, range_id: int, epoch: Epoch, name: str) -> None:
        """Forget a puller."""
        await self._ranges.unregister(self._find(principal, range_id, epoch), principal.name, name)

    async def snapshot(
        self, principal: Principal, range_id: int, epoch: Epoch, name: str, version: Offset, last: bytes
    ) -> PulledRows:
        """Return the rows after a key, of the copy `version`; of another one, from its beginning, where that is lost.

        A copy is lost when the schema of the table changes. Its rows contain all changes up to the version, and perhaps
        some after it.
        """
        within = self._find(principal, range_id, epoch)
        puller = self._ranges.puller(within, principal.name, name)
        if last and not within.contains(last):
            raise OutOfBoundError(last, within)
        with self._ranges.pulling(puller):
            self._ranges.heard(puller)
            goes_on = bool(last) and version == puller.snapshot_version
            for _ in range(_SCHEMA_CHANGES_MAX):
                page = await self._page(principal, within, last if goes_on else b"")
                if goes_on and page.schema.version == puller.snapshot_schema and (page.rows or page.end):
                    return PulledRows(puller.snapshot_version, page.rows, page.end)
                if not goes_on and (page.rows or page.end):
                    await self._ranges.begun(puller, page.offset, page.schema.version)
                    return PulledRows(page.offset, page.rows, page.end)
                goes_on = False
        raise InvalidRequestError("the schema of the table keeps changing: try again later")

    async def log(self, principal: Principal, range_id: int, epoch: Epoch, name: str, after: Offset) -> PulledLog:
        """Return the changes after an offset; waits for one where there is none, but not for long."""
        within = self._find(principal, range_id, epoch)
        puller = self._ranges.puller(within, principal.name, name)
        table, shard = self._ranges.table_of(within), self.shard_of(within)
        restriction = self._scopes.restrictions.get(principal, shard.name)
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + self._pull.wait_s
        with self._ranges.pulling(puller):
            place = after
            while True:
                read = await read_changes(shard.log, table.table, within, place, restriction, self._pull)
                if isinstance(read, TableDropped):
                    await self._ranges.retire(table)
                    raise UnknownRangeError(range_id)
                if isinstance(read, TableTruncated):
                    # JimDB has no operation for it. As after lost changes, the puller has to begin with a new snapshot.
                    raise BehindHorizonError(requested=read.offset, horizon=Offset(read.offset + 1))
                self._ranges.heard(puller, after)  # only what the log has
                left_s = deadline_s - loop.time()
                if read.changes or left_s <= 0 or self._stopping:
                    return read
                place = read.through
                await shard.log.wait(place, min(left_s, self._pull.wait_step_s))

    async def _page(self, principal: Principal, within: KeyRange, last: bytes) -> RangePage:
        table, shard = self._ranges.table_of(within), self.shard_of(within)
        restriction = self._scopes.restrictions.get(principal, shard.name)
        rows_max = min(self._pull.rows_max, self._rows_read.pop(within.id, self._pull.rows_max))
        options = structs.replace(self._pull, rows_max=rows_max)
        try:
            page = await read_range(shard, table, within, last, restriction, options)
        except UnknownTableError as error:
            raise UnknownRangeError(within.id) from error
        if page.schema.key != table.key:
            await self._ranges.retire(table)
            raise UnknownRangeError(within.id)
        if page.rows and (page.full or rows_max < self._pull.rows_max):
            self._rows_read[within.id] = len(page.rows) * 2
        return page

    def _find(self, principal: Principal, range_id: int, epoch: Epoch) -> KeyRange:
        """Return a range that a principal may see, if the request is about what it is now."""
        self._require_capture()
        principal.require(Capability.READ)
        within = self._ranges.get(range_id)
        if not principal.sees(self._ranges.table_of(within).table):
            raise UnknownRangeError(range_id)
        self._ranges.check(within, epoch)
        return within

    async def _cuts(self, schema: TableSchema) -> Sequence[bytes]:
        """Return the last keys of all ranges but one, so that they have about as many rows each."""
        source = self._shard(schema).source
        rows = await source.count(schema.table)
        parts = min(self._options.ranges_max, rows // self._options.rows_min)
        if parts < 2 or not await self._is_divisible(schema):
            return []
        run = -(-rows // parts)
        cuts = await source.cut(schema.table, KeyInterval(), rows=run, count=parts - 1)
        return [cut_of(cut, schema) for cut in cuts]

    async def _require_key(self, within: KeyRange, schema: TableSchema, key: bytes) -> None:
        """Refuse what cannot be the key of a row of a range: the border must be the same for the database."""
        beyond = interval_after(within, self._ranges.table_of(within), key, schema)
        source = self._shard(schema).source
        try:
            await source.cut(schema.table, beyond, rows=1, count=1)
        except InvalidValueError as error:
            raise OutOfBoundError(key, within) from error
        values = key_of(key, schema)
        # A value that the column converts before it compares would have the border elsewhere.
        supported, _ = await source.consult(lambda catalog: source.dialect.keeps(values, schema, catalog))
        if not supported:
            raise OutOfBoundError(key, within)

    async def _middle(self, within: KeyRange, schema: TableSchema) -> bytes:
        """Return the key in the middle of a range's rows."""
        table = self._ranges.table_of(within)
        source = self._shard(schema).source
        interval = interval_after(within, table, b"", schema)
        rows = 1
        keys = await source.cut(schema.table, interval, rows=rows, count=_SAMPLES)
        while len(keys) == _SAMPLES:
            rows *= _SAMPLES // 2
            keys = await source.cut(schema.table, interval, rows=rows, count=_SAMPLES)
        if len(keys) < 2:
            raise InvalidRequestError(f"range {within.id} has too few rows to be divided")
        return table.prefix + cut_of(keys[(len(keys) - 1) // 2], schema)

    async def _is_divisible(self, schema: TableSchema) -> bool:
        """Tell whether the database has the keys of a table in the order of their bytes: then borders are the same."""
        source = self._shard(schema).source
        divisible, _ = await source.consult(lambda catalog: source.dialect.orders_as_bytes(schema, catalog))
        return divisible

    def _shard(self, schema: TableSchema) -> RangeShard:
        return self._ranges.shard(schema.table.source)

    def _require_capture(self) -> None:
        if not self._capture_enabled:
            raise CaptureDisabledError
