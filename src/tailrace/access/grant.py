"""Grants: what a credential gives, in the words of the configuration, of stored keys and of claims. Pure."""

from collections.abc import Iterable, Sequence

from msgspec import Struct

from tailrace.access.principal import Capability, Principal
from tailrace.model.errors import InvalidRequestError

__all__ = ["ROLES", "Grant", "capabilities_of", "check_grant", "principal_of"]

ROLES: dict[str, frozenset[str]] = {
    "owner": frozenset(Capability),
    "editor": frozenset({Capability.READ, Capability.WRITE, Capability.MANAGE_COLLECTIONS, Capability.MANAGE_INDEXES}),
    "viewer": frozenset({Capability.READ, Capability.VIEW_METRICS}),
}
"""Capabilities of each role."""

_DEFAULT = "default"
"""The tenant of whoever names none, and the source that every tenant may reach."""

_NAME_MAX = 255
_TENANT_MAX = 80
"""Longest name of a tenant; with the id of a principal it must fit where owners are kept, however it is written."""

_ENTRIES_MAX = 1000


class Grant(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What a credential gives. Capabilities are those of the role and those named; `read` where there is neither.

    Without `namespaces` a grant reaches the sources of its `tables`; without those, all if it names no tenant or has
    `admin`, and else the source of the tenant's name and `default`.
    """

    tenant: str | None = None
    role: str | None = None
    capabilities: tuple[str, ...] = ()
    namespaces: tuple[str, ...] | None = None
    tables: tuple[str, ...] | None = None
    """Each `source.table`."""

    rows: dict[str, str] = {}
    """SQL predicate by `source.table`."""


def capabilities_of(role: str | None, capabilities: Iterable[str]) -> frozenset[str]:
    """Return what a role and capabilities named beside it give; a role that nobody knows gives nothing."""
    named = frozenset(capabilities)
    if role is None:
        return named or frozenset({Capability.READ})
    return named | ROLES.get(role.lower(), frozenset())


def principal_of(
    name: str, grant: Grant, *, expires_time_us: int | None = None, credential: str = "", tenanted: bool = False
) -> Principal:
    """Return who a grant makes of a caller. Where it is `tenanted`, a grant that names no tenant is `default`'s."""
    tenant = grant.tenant or (_DEFAULT if tenanted else None)
    capabilities = capabilities_of(grant.role, grant.capabilities)
    return Principal(
        id=name,
        tenant=tenant or _DEFAULT,
        capabilities=capabilities,
        namespaces=_namespaces(grant, tenant, capabilities),
        tables=None if grant.tables is None else frozenset(grant.tables),
        rows=dict(sorted(grant.rows.items())),
        expires_time_us=expires_time_us,
        credential=credential,
    )


def check_grant(grant: Grant) -> None:
    """Refuse a grant that someone has mistyped. Predicates are checked by whoever knows their grammar.

    Raises:
        InvalidRequestError: A role is not known, or a table is not named `source.table`.
    """
    if grant.role is not None and grant.role.lower() not in ROLES:
        raise InvalidRequestError(f"role {grant.role!r} is not one of {', '.join(ROLES)}")
    paths = [*(grant.tables or ()), *grant.rows]
    for path in paths:
        source, dot, table = path.partition(".")
        if not (source and dot and table):
            raise InvalidRequestError(f"table {path!r} is not of the form SOURCE.TABLE")
    if grant.tables is not None and not set(grant.rows) <= set(grant.tables):
        raise InvalidRequestError("rows are given of a table that is not among the tables")
    if grant.tenant is not None and not 0 < len(grant.tenant) <= _TENANT_MAX:
        raise InvalidRequestError(f"a tenant has a name of 1 to {_TENANT_MAX} characters")
    names: Sequence[str] = [*grant.capabilities, *(grant.namespaces or ()), *paths]
    if len(names) > _ENTRIES_MAX or any(not 0 < len(name) <= _NAME_MAX for name in names):
        raise InvalidRequestError(f"a grant has at most {_ENTRIES_MAX} names of 1 to {_NAME_MAX} characters")


def _namespaces(grant: Grant, tenant: str | None, capabilities: frozenset[str]) -> frozenset[str] | None:
    if grant.namespaces is not None:
        return frozenset(grant.namespaces)
    if grant.tables is not None:
        return frozenset(path.partition(".")[0] for path in grant.tables)
    if tenant is None or Capability.ADMIN in capabilities:
        return None
    return frozenset({tenant, _DEFAULT})
