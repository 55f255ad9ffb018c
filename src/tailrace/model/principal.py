"""Who calls, and what they may see and do."""

from enum import StrEnum

from msgspec import Struct, field

__all__ = ["ANONYMOUS", "Capability", "Principal"]


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


class Principal(Struct, frozen=True):
    """One caller, as authentication found it. Equal principals see the same."""

    id: str
    tenant: str = "default"
    capabilities: frozenset[str] = frozenset()

    namespaces: frozenset[str] | None = None
    """Sources that it may reach, by name; None for all."""

    tables: frozenset[str] | None = None
    """Tables that it may see, each `source.table`; None for all of its namespaces."""

    rows: dict[str, str] = field(default_factory=dict)
    """SQL predicate over the rows that it may see, by `source.table`; a table without one is seen whole."""

    expires_time_us: int | None = None
    """When its credentials end; None for never."""

    def may(self, capability: Capability) -> bool:
        """Tell whether it has a capability."""
        return Capability.ADMIN in self.capabilities or capability in self.capabilities


ANONYMOUS = Principal("anonymous", capabilities=frozenset(Capability))
"""Everybody, where authentication is off."""
