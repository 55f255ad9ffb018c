"""What a principal may read of a source in bulk: the tables that it sees whole. All others are not there for it."""

from collections.abc import Collection

from tailrace.access.principal import Capability, Principal, table_path
from tailrace.model.errors import PermissionDeniedError, UnknownSourceError
from tailrace.model.number import SchemaId
from tailrace.model.table import TableName
from tailrace.subscription.access import Scopes
from tailrace.subscription.bulk import schemas_of
from tailrace.subscription.log_view import LogView
from tailrace.subscription.restrict import Restriction
from tailrace.subscription.table import readings

__all__ = ["BulkSight", "bulk_sight"]


class BulkSight:
    """What one principal sees of one source in bulk, as of now.

    Rows of a table of which it sees only some cannot be had in bulk: the keys that divide a table are those of any of
    its rows.
    """

    def __init__(self, source: str, log: LogView, principal: Principal, restriction: Restriction | None) -> None:
        self.source = source
        self.log = log
        self._principal = principal
        self._restriction = restriction

    def schemas(self, names: Collection[str]) -> frozenset[SchemaId] | None:
        """Return the versions of the tables of these names, of all that it sees for no names; None for all there are.

        Raises:
            PermissionDeniedError: It does not see one of them, or not all of its rows.
            UnknownTableError: There is no such table.
        """
        self.require(names)
        if self._restriction is None:
            return schemas_of(self.log, self.source, names)
        chosen = schemas_of(self.log, self.source, names, self._sees_whole)
        if chosen is not None:
            return chosen
        return frozenset(number for number, schema in self.log.schemas().items() if self._sees_whole(schema.table))

    def require(self, names: Collection[str]) -> None:
        """Refuse to go on to tables that it does not see whole, whether or not there are any of these names.

        Raises:
            PermissionDeniedError: It does not see one of them, or not all of its rows.
        """
        if self._restriction is None:
            return
        for name in names:
            named = list(readings(self.source, name))
            if any(map(self._sees_whole, named)):
                continue
            seen = [table for table in named if self._restriction.sees(table)]
            if not seen:
                self._principal.require_table(named[0])
            raise PermissionDeniedError(
                f"Access denied to table '{table_path(seen[0])}' in bulk: only some of its rows are yours"
            )

    def _sees_whole(self, table: TableName) -> bool:
        assert self._restriction is not None
        return self._restriction.sees(table) and not self._restriction.narrows(table)


def bulk_sight(scopes: Scopes, principal: Principal, source: str) -> BulkSight:
    """Return what a principal may read of a source in bulk.

    Raises:
        UnknownSourceError: There is no such source.
        PermissionDeniedError: The principal may not read, or does not reach the source or any table of it.
    """
    principal.require(Capability.READ)
    principal.require_namespace(source)
    if principal.tables is not None and not any(path.startswith(f"{source}.") for path in principal.tables):
        raise PermissionDeniedError(f"Access denied to '{source}' in bulk: none of its tables is yours")
    if source not in scopes.service.logs:
        raise UnknownSourceError(source)
    return BulkSight(source, scopes.service.logs[source], principal, scopes.restrictions.get(principal, source))
