"""Who calls, and what they may see and do."""

from collections.abc import Callable, Mapping
from enum import StrEnum

from msgspec import Struct, field

from tailrace.model.errors import PermissionDeniedError
from tailrace.model.table import TableName

__all__ = ["ANONYMOUS", "Capability", "Fold", "Principal", "row_path", "table_path"]

Fold = Callable[[str], str]
"""Returns the name of a table as its database compares it."""


class Capability(StrEnum):
    """What a principal may do. `ADMIN` includes all others."""

    READ = "read"
    WRITE = "write"
    ADMIN = "admin"
    MANAGE_COLLECTIONS = "manage_collections"
    MANAGE_INDEXES = "manage_indexes"
    VIEW_METRICS = "view_metrics"
    MANAGE_BACKUPS = "manage_backups"
    MANAGE_USERS = "manage_users"

    @property
    def title(self) -> str:  # type: ignore[override]
        """Return the name as refusals show it: `ManageUsers`."""
        return "".join(word.capitalize() for word in self.value.split("_"))


class Principal(Struct, frozen=True):
    """One caller, as authentication found it. Equal principals see the same."""

    id: str
    tenant: str = "default"
    capabilities: frozenset[str] = frozenset()

    namespaces: frozenset[str] | None = None
    """Sources that it may reach, by name; None for all."""

    tables: frozenset[str] | None = None
    """Tables that it may see, each `source.table`; None for all of its namespaces."""

    rows: Mapping[str, str] = field(default_factory=dict)
    """SQL predicate over the rows that it may see, by `source.table`; a table without one is seen whole.

    The table is matched as its database compares names: SQLite takes `Orders` and `orders` for one, and what was
    written to hide rows must not show them all.
    """

    expires_time_us: int | None = None
    """When its credentials end; None for never."""

    credential: str = ""
    """Which stored key it came by, for whoever watches whether that is revoked; empty where none can be."""

    def may(self, capability: Capability) -> bool:
        """Tell whether it has a capability."""
        return Capability.ADMIN in self.capabilities or capability in self.capabilities

    def require(self, capability: Capability) -> None:
        """Refuse to go on without a capability.

        Raises:
            PermissionDeniedError: It does not have it.
        """
        if not self.may(capability):
            raise PermissionDeniedError(f"Insufficient permissions. Required: {capability.title}, principal: {self.id}")

    def reaches(self, namespace: str) -> bool:
        """Tell whether it may reach a source at all."""
        return self.namespaces is None or namespace in self.namespaces

    def require_namespace(self, namespace: str) -> None:
        """Refuse to go on to a source that it may not reach, whether or not there is one of that name.

        Raises:
            PermissionDeniedError: It may not reach it.
        """
        if not self.reaches(namespace):
            raise PermissionDeniedError(f"Access denied to namespace '{namespace}' for tenant '{self.tenant}'")

    def sees(self, table: TableName) -> bool:
        """Tell whether it may see some of a table: all of it, or the rows that a predicate gives it."""
        return self.reaches(table.source) and (self.tables is None or table_path(table) in self.tables)

    def require_table(self, table: TableName) -> None:
        """Refuse to go on to a table of which it may see nothing, whether or not there is one of that name.

        Raises:
            PermissionDeniedError: It may not see it.
        """
        self.require_namespace(table.source)
        if not self.sees(table):
            raise PermissionDeniedError(f"Access denied to table '{table_path(table)}' for tenant '{self.tenant}'")

    def predicates(self, source: str, fold: Fold) -> Mapping[str, str]:
        """Return the predicates over rows of a source, by `row_path`; where two are for one table, both must hold."""
        found: dict[str, str] = {}
        own = f"{source}."
        for path, predicate in self.rows.items():
            if path.startswith(own):
                folded = own + fold(path.removeprefix(own))
                found[folded] = f"({found[folded]}) AND ({predicate})" if folded in found else predicate
        return found

    def narrowed(self, table: TableName, fold: Fold) -> bool:
        """Tell whether it may see only some rows of a table."""
        return row_path(table, fold) in self.predicates(table.source, fold)

    @property
    def owner(self) -> str | None:
        """Return the name under which it owns subscriptions; None where nobody asked who calls."""
        return None if self == ANONYMOUS else self.name

    @property
    def name(self) -> str:
        """Return what tells it from all others: its id, with the tenant where that is another than `default`."""
        if self.tenant == "default" and "/" not in self.id:
            return self.id
        tenant = self.tenant.replace("%", "%25").replace("/", "%2F")
        return f"{tenant}/{self.id}"

    @property
    def sees_all(self) -> bool:
        """Tell whether nothing is hidden from it."""
        return self.namespaces is None and self.tables is None and not self.rows


def table_path(table: TableName) -> str:
    """Return a table as rights name it: `source.table`, or `source.schema.table` outside the default schema."""
    return f"{table.source}.{table.wire}"


def row_path(table: TableName, fold: Fold) -> str:
    """Return a table as its predicate is found: its path, the table as its database compares it."""
    return f"{table.source}.{fold(table.wire)}"


ANONYMOUS = Principal("anonymous", capabilities=frozenset(Capability))
"""Everybody, where authentication is off."""
