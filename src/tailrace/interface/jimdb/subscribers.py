"""Pipelines that are made and ended over the wire: rows in the metadata database, which workers take up."""

import re
from collections.abc import Callable

from msgspec import Struct

from tailrace.access.principal import Capability, Principal
from tailrace.interface.jimdb.pull import PullService
from tailrace.meta.pipeline import Definition
from tailrace.meta.pipeline_catalog import PipelineCatalog
from tailrace.meta.pipeline_row import Numbers
from tailrace.meta.store import MetaStore
from tailrace.model.errors import AccessError, InvalidRequestError, PipelineExistsError, UnknownPipelineError
from tailrace.subscription.access import Scopes
from tailrace.subscription.access_bulk import bulk_sight

__all__ = ["Subscriber", "Subscribers"]

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")


class Subscriber(Struct, frozen=True):
    """One table of a pipeline. `sink` is its URL, which may hold a password: never show it as it is."""

    source: str
    table: str
    name: str
    sink: str
    numbers: Numbers
    cancelled: bool = False


class Subscribers:
    """Makes and ends pipelines. For tasks of one event loop.

    Only someone with `admin` who sees the whole table may: a worker copies it with rights of its own to wherever the
    sink is.
    """

    def __init__(
        self,
        store: MetaStore,
        pulls: PullService,
        scopes: Scopes,
        server_url: Callable[[], str],
        cluster_id: int,
    ) -> None:
        self._store = store
        self._catalog = PipelineCatalog(store.database)
        self._pulls = pulls
        self._scopes = scopes
        self._server_url = server_url
        self._cluster_id = cluster_id

    async def subscribe(self, principal: Principal, namespace: str, wire: str, name: str, sink: str) -> Subscriber:
        """Keep a pipeline from a table into a sink; the same one again is the same.

        Raises:
            InvalidRequestError: The name is none of a pipeline.
            UnknownSourceError, UnknownTableError: There is no such table.
            PermissionDeniedError: The principal may not do this.
            PipelineExistsError: There is another one of that name, or one that is being removed.
        """
        if not _NAME.fullmatch(name):
            raise InvalidRequestError("subscriber_name is up to 64 letters, digits, '_', '-' and '.'")
        source, table, numbers = await self._table(principal, namespace, wire)
        server = self._server_url()
        definition = Definition(name=name, source=source, tables=(table,), sink=sink, server=server)
        try:
            await self._store.call(lambda: self._catalog.create(definition, numbers))
        except PipelineExistsError:
            known = await self._store.call(lambda: self._catalog.get(name))
            same = (known.definition.source, known.definition.tables, known.definition.sink) == (source, (table,), sink)
            if not same or known.cancelled:
                raise
        return Subscriber(source, table, name, sink, numbers)

    async def unsubscribe(self, principal: Principal, namespace: str, wire: str, name: str) -> Subscriber:
        """Have a pipeline removed: its worker stops, and removes it. What its sink has stays.

        Raises:
            UnknownPipelineError: The table has none of that name whose tables the principal sees whole.
            PermissionDeniedError: The principal may not do this.
        """
        source, table, numbers = await self._table(principal, namespace, wire)
        known = await self._store.call(lambda: self._catalog.get(name))
        if known.definition.source != source or table not in known.definition.tables:
            raise UnknownPipelineError(name)
        try:
            bulk_sight(self._scopes, principal, source).require(known.definition.tables)
        except AccessError:
            raise UnknownPipelineError(name) from None
        await self._store.call(lambda: self._catalog.cancel(name))
        return Subscriber(source, table, name, known.definition.sink, numbers, cancelled=True)

    async def _table(self, principal: Principal, namespace: str, wire: str) -> tuple[str, str, Numbers]:
        """Return the source and the name of a table, and its numbers."""
        principal.require(Capability.ADMIN)
        schema, ranges = await self._pulls.ranges(principal, namespace, wire)
        restriction = self._scopes.restrictions.get(principal, schema.table.source)
        if restriction is not None:
            restriction.require_whole([schema.table])
        db_id = self._pulls.shard_of(ranges[0]).number
        return schema.table.source, schema.table.wire, Numbers(self._cluster_id, db_id, ranges[0].table_id)
