"""The pipelines of a server's sources, for those who may see them."""

from collections.abc import Sequence

from tailrace.access.namespace import source_of
from tailrace.access.principal import Principal
from tailrace.clock import Clock
from tailrace.meta.pipeline import Pipeline, RangeProgress
from tailrace.meta.pipeline_catalog import PipelineCatalog
from tailrace.meta.pipeline_status import PipelineStatus, offset_of, status_of
from tailrace.meta.store import MetaStore
from tailrace.model.errors import AccessError, BehindHorizonError, UnknownPipelineError, UnknownSourceError
from tailrace.model.number import Offset
from tailrace.sink_url import parse
from tailrace.subscription.access import Scopes
from tailrace.subscription.access_bulk import bulk_sight
from tailrace.subscription.log_view import LogView

__all__ = ["Pipelines"]

_US_PER_S = 1e6


class Pipelines:
    """Tells how pipelines are. Those of sources that the server does not have are not there.

    Whoever sees all tables of a pipeline whole sees the pipeline: its status names keys of rows. For all others it is
    not there. For tasks of one event loop.
    """

    def __init__(self, store: MetaStore, scopes: Scopes, clock: Clock) -> None:
        self._store = store
        self._catalog = PipelineCatalog(store.database)
        self._scopes = scopes
        self._clock = clock

    async def all(self) -> Sequence[PipelineStatus]:
        """Return how all pipelines are, in order of their names.

        Raises:
            MetadataError: The metadata database refused.
        """
        found = await self._store.call(self._catalog.all)
        progress = await self._store.call(self._catalog.progress_of_all)
        letters = await self._store.call(self._catalog.letters_of_all)
        logs = self._scopes.service.logs
        ours = [(one, source) for one in found if (source := self._source(one.definition.source)) is not None]
        return [
            await self._status(one, progress.get(name, []), logs[source], letters.get(name, 0))
            for one, source in ours
            for name in [one.definition.name]
        ]

    async def seen(self, principal: Principal) -> Sequence[PipelineStatus]:
        """Return how the pipelines are that a principal may see.

        Raises:
            MetadataError: The metadata database refused.
        """
        return [one for one in await self.all() if self._sees(principal, one)]

    async def get(self, principal: Principal, name: str) -> PipelineStatus:
        """Return how a pipeline is.

        Raises:
            UnknownPipelineError: There is none of that name that the principal may see.
            MetadataError: The metadata database refused.
        """
        for one in await self.seen(principal):
            if one.name == name:
                return one
        raise UnknownPipelineError(name)

    async def _status(
        self, found: Pipeline, ranges: Sequence[RangeProgress], log: LogView, letters: int
    ) -> PipelineStatus:
        lag_s = await self._lag_s(log, Offset(offset_of(ranges))) if ranges else None
        sink = str(parse(found.definition.sink))
        return status_of(found, ranges, sink=sink, head=log.head, lag_s=lag_s, letters=letters)

    async def _lag_s(self, log: LogView, offset: Offset) -> float | None:
        """Return how old the change is that follows an offset, or the oldest that is left; None where none is."""
        if offset >= log.head:
            return None
        try:
            chunk = await log.read(max(offset, Offset(log.horizon - 1)))
        except BehindHorizonError:  # retention was quicker
            chunk = None
        if chunk is None:
            return None
        place = max(0, max(offset + 1, log.horizon) - chunk.first)
        committed_us: int = chunk.batch.column("commit_time_us")[min(place, len(chunk) - 1)].as_py()
        return max(0.0, (self._clock.now_us() - committed_us) / _US_PER_S)

    def _source(self, name: str) -> str | None:
        """Return the source that a pipeline names; None where the server does not have it."""
        try:
            return source_of(name, self._scopes.service.logs)
        except UnknownSourceError:
            return None

    def _sees(self, principal: Principal, one: PipelineStatus) -> bool:
        try:
            bulk_sight(self._scopes, principal, self._source(one.source) or one.source).require(one.tables)
        except AccessError:
            return False
        return True
