"""Which source a request is for: `namespace` of one interface, `db` of another. The only place that knows. Pure."""

from collections.abc import Collection

from tailrace.access.principal import Principal
from tailrace.model.errors import InvalidRequestError, UnknownSourceError

__all__ = ["DEFAULT", "source_by_db", "source_for", "source_of"]

DEFAULT = "default"
"""What a client sends that does not care: then the only source is meant."""


def source_of(name: str, sources: Collection[str], word: str = "namespace") -> str:
    """Return the name of the source that a request is for; `word` is what the interface calls it.

    None, or `default`, is the source of that name where there is one, otherwise the only source.

    Raises:
        UnknownSourceError: No source is meant, or one of several.
    """
    wanted = name or DEFAULT
    if wanted in sources:
        return wanted
    if wanted == DEFAULT and len(sources) == 1:
        return next(iter(sources))
    raise UnknownSourceError(name, word, sources)


def source_for(principal: Principal, name: str, sources: Collection[str], word: str = "namespace") -> str:
    """Return the name of the source that a principal's request is for.

    Where no source is named, those that the principal may not reach do not count, and no error names them.

    Raises:
        PermissionDeniedError: It may not reach it, whether or not there is one of that name.
        UnknownSourceError: No source is meant, or one of several.
    """
    wanted = name or DEFAULT
    if wanted in sources:
        principal.require_namespace(wanted)
    try:
        return source_of(name, [source for source in sources if principal.reaches(source)], word)
    except UnknownSourceError:
        principal.require_namespace(wanted)
        raise


def source_by_db(principal: Principal, db: str | None, sources: Collection[str]) -> str:
    """Return the name of the source that a principal's `db` names; see `source_for`.

    Raises:
        InvalidRequestError: It is left out, and there are several.
        PermissionDeniedError: The principal may not reach it, whether or not there is one of that name.
        UnknownSourceError: There is none of that name.
    """
    reached = sorted(filter(principal.reaches, sources))
    if not db and len(reached) > 1 and DEFAULT not in reached:
        raise InvalidRequestError(f"say which database: `db` is one of {', '.join(reached)}")
    return source_for(principal, db or "", sources, "source")
