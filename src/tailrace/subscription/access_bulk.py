"""Who may read a source in bulk: whoever sees all of it."""

from tailrace.model.errors import PermissionDeniedError, UnknownSourceError
from tailrace.model.principal import Capability, Principal
from tailrace.subscription.access import Scopes

__all__ = ["require_whole_source"]


def require_whole_source(scopes: Scopes, principal: Principal, source: str) -> None:
    """Refuse to go on unless a principal sees every row of every table of a source.

    Raises:
        UnknownSourceError: There is no such source.
        PermissionDeniedError: The principal may not read, does not reach the source, or sees only some of it.
    """
    principal.require(Capability.READ)
    principal.require_namespace(source)
    if source not in scopes.service.logs:
        raise UnknownSourceError(source)
    if scopes.restrictions.get(principal, source) is not None:
        raise PermissionDeniedError(f"Access denied to '{source}' in bulk: only some of its rows are yours")
