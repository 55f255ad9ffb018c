"""Making capture ready in a PostgreSQL database, and looking whether it can be. Blocking."""

from tailrace.model.errors import SourceStateError
from tailrace.source.postgres.catalog import Catalog, PublishedTable, creation_of
from tailrace.source.postgres.options import SLOT_PREFIX, PostgresSettings

__all__ = [
    "TAIL_PREFIX",
    "VERSION_MIN",
    "drop_stale_publications",
    "ensure_publication",
    "identity_remedy",
    "require_capturable",
]

VERSION_MIN = 140000
TAIL_PREFIX = f"{SLOT_PREFIX}tail_"
"""Names of slots and publications that belong to a process begin so."""

_SHOWN_MAX = 10


def require_capturable(catalog: Catalog) -> None:
    """Look whether the server can be captured at all; changes nothing.

    Raises:
        SourceStateError: It cannot; the message has the SQL that fixes it.
    """
    if catalog.version < VERSION_MIN:
        raise SourceStateError(
            f"PostgreSQL {catalog.version // 10000} cannot be captured: version 14 is the oldest; upgrade the server"
        )
    level = catalog.setting("wal_level")
    if level != "logical":
        raise SourceStateError(
            f"wal_level is {level}, and changes can be captured with logical only: "
            "ALTER SYSTEM SET wal_level = 'logical'; then restart the server"
        )
    if not catalog.role_rights()[1]:
        raise SourceStateError(
            f'role {catalog.user} may not replicate: ALTER ROLE "{catalog.user}" REPLICATION; as a superuser'
        )


def ensure_publication(catalog: Catalog, name: str, settings: PostgresSettings) -> bool:
    """Make the publication where there is none of that name; return whether it was made.

    Raises:
        SourceStateError: The role may not make it, or tables in it could not be written to any more.
    """
    if catalog.publication(name) is not None:
        return False
    keyless = [table for table in catalog.candidates(settings) if not table.has_identity]
    if keyless:
        # In a publication, updates of a table without an identity fail: the application must not find out.
        names = ", ".join(table.shown for table in keyless[:_SHOWN_MAX])
        raise SourceStateError(
            f"these tables have no primary key, so their updates and deletes would fail once they are published: "
            f"{names}; run {identity_remedy(keyless)} or name other tables with the option tables"
        )
    try:
        catalog.create_publication(name, settings)
    except SourceStateError as error:
        raise SourceStateError(
            f"{error}; as a superuser, or as the owner of the tables where they are named, run: "
            f"{creation_of(name, settings)};"
        ) from error
    return True


def identity_remedy(tables: list[PublishedTable]) -> str:
    """Return the SQL that gives tables an identity."""
    shown = [f"ALTER TABLE {table.shown} REPLICA IDENTITY FULL;" for table in tables[:_SHOWN_MAX]]
    return " ".join(shown) + (" …" if len(tables) > _SHOWN_MAX else "")


def drop_stale_publications(catalog: Catalog) -> None:
    """Remove publications of processes that are gone: what they had is held by nobody."""
    query = "SELECT pubname::text FROM pg_publication WHERE starts_with(pubname::text, %s)"
    for (name,) in catalog.rows(query, [TAIL_PREFIX]):
        if catalog.hold(name):
            found = catalog.publication(name)
            if found is not None and found.ours:
                catalog.drop_publication(name)
            catalog.release(name)
