"""Which source a namespace of seed A names. The only place that knows. Pure."""

from collections.abc import Collection

from tailrace.model.errors import UnknownSourceError
from tailrace.model.principal import Principal

__all__ = ["DEFAULT", "source_for", "source_of"]

DEFAULT = "default"
"""What a client sends that does not care: then the only source is meant."""


def source_of(namespace: str, sources: Collection[str]) -> str:
    """Return the name of the source that a request is for.

    A namespace is the name of a source. None, or `default`, is the source of that name where there is one, otherwise
    the only source.

    Raises:
        UnknownSourceError: No source is meant, or one of several.
    """
    name = namespace or DEFAULT
    if name in sources:
        return name
    if name == DEFAULT and len(sources) == 1:
        return next(iter(sources))
    raise UnknownSourceError(namespace, "namespace")


def source_for(principal: Principal, namespace: str, sources: Collection[str]) -> str:
    """Return the name of the source that a principal's request is for.

    Where no source is named, those that the principal may not reach do not count.

    Raises:
        PermissionDeniedError: It may not reach it, whether or not there is one of that name.
        UnknownSourceError: No source is meant, or one of several.
    """
    name = namespace or DEFAULT
    if name in sources:
        principal.require_namespace(name)
    try:
        return source_of(namespace, [source for source in sources if principal.reaches(source)])
    except UnknownSourceError:
        principal.require_namespace(name)
        raise
