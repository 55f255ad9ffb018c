"""The query service as one principal may use it. A query is for those who see all tables that it depends on whole."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

from tailrace.access.namespace import source_by_db
from tailrace.access.principal import Capability, Principal
from tailrace.model.errors import InvalidRequestError, PermissionDeniedError, TailraceError, UnknownQueryError
from tailrace.model.subscription import PreparedQuery, QueryTarget
from tailrace.model.value import Value
from tailrace.subscription.query.service import Executed, QueryService
from tailrace.subscription.query.tracker import Tracker
from tailrace.subscription.restrict import Restriction, Restrictions

__all__ = ["ScopedQueries"]


class ScopedQueries:
    """A query service for one principal; see `QueryService` for what each method does.

    Every method raises `PermissionDeniedError` where the principal may not do it. Queries of sources that it does not
    reach are unknown to it.
    """

    def __init__(self, queries: QueryService, principal: Principal, restrictions: Restrictions) -> None:
        self._queries = queries
        self._principal = principal
        self._restrictions = restrictions

    async def prepare(
        self, query: str | Mapping[str, Any], *, name: str = "", source: str | None = None
    ) -> PreparedQuery:
        """Keep a query and return it."""
        source = self._source(source)
        return await self._admitted(query, source, partial(self._queries.prepare, query, name=name, source=source))

    async def draft(
        self,
        query: str | Mapping[str, Any],
        *,
        name: str = "",
        source: str | None = None,
        pending: Mapping[str, PreparedQuery] | None = None,
    ) -> PreparedQuery:
        """Return what `prepare` would keep."""
        source = self._source(source)
        draft = partial(self._queries.draft, query, name=name, source=source, pending=pending)
        return await self._admitted(query, source, draft)

    async def _admitted(
        self, query: str | Mapping[str, Any], source: str, make: Callable[..., Awaitable[PreparedQuery]]
    ) -> PreparedQuery:
        """Return a query that is made only if the principal sees all of its tables whole."""
        self._principal.require(Capability.READ)
        restriction = self._restriction(source)
        if restriction is None:
            return await make()
        await self._queries.parse(query, source)
        try:
            return await make(admit=restriction.require_whole)
        except InvalidRequestError as error:
            # The words of the database would tell which tables and columns there are.
            raise PermissionDeniedError("Access denied: the query names what is not seen or not there") from error

    async def queries(self) -> Sequence[PreparedQuery]:
        """Return the prepared queries that it may run, the oldest first."""
        self._principal.require(Capability.READ)
        reached = [query for query in self._queries.queries() if self._principal.reaches(query.source)]
        return [query for query in reached if await self._may_run(query)]

    def get(self, query_id: str) -> PreparedQuery:
        """Return a prepared query of a source that it reaches.

        Raises:
            UnknownQueryError: There is none of that id.
        """
        self._principal.require(Capability.READ)
        prepared = self._queries.get(query_id)
        if not self._principal.reaches(prepared.source):
            raise UnknownQueryError(query_id)
        return prepared

    async def resolve(self, target: QueryTarget) -> QueryTarget:
        """Return a target with the tables that the query depends on now."""
        restriction = self._restriction(self.get(target.query_id).source)
        resolved = await self._queries.resolve(target)
        if restriction is not None:
            restriction.require_whole(resolved.tables)
        return resolved

    async def tracker(self, query_id: str, args: Sequence[Value]) -> Tracker:
        """Return what follows a query with these arguments."""
        await self.require(query_id)
        return await self._queries.tracker(query_id, args)

    async def execute(self, query_id: str, args: Sequence[Value], if_none_match: str | None = None) -> Executed:
        """Run a query, unless its result is the one that the client has by an ETag."""
        restricted = await self.require(query_id)
        executed = await self._queries.execute(query_id, args, if_none_match)
        if restricted:
            await self.require(query_id)  # a view may have become another meanwhile
        return executed

    async def require(self, query_id: str) -> bool:
        """Refuse a query that it may not run; tell whether that had to be found out."""
        prepared = self.get(query_id)
        restriction = self._restriction(prepared.source)
        if restriction is None:
            return False
        restriction.require_whole(await self._queries.tables(prepared))
        return True

    async def _may_run(self, query: PreparedQuery) -> bool:
        try:
            await self.require(query.query_id)
        except TailraceError:
            return False
        return True

    def _restriction(self, source: str) -> Restriction | None:
        return self._restrictions.get(self._principal, source)

    def _source(self, name: str | None) -> str:
        """Return the source that is meant: the one named, or the only one that it reaches."""
        return source_by_db(self._principal, name, self._queries.sources)
