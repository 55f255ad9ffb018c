"""What is wrong or risky with a PostgreSQL database for capture, and the SQL that fixes it. Changes nothing."""

from collections.abc import Iterator
from contextlib import closing

from tailrace.model.errors import SourceError
from tailrace.source.administration import Finding, Severity
from tailrace.source.postgres.catalog import Catalog, PublishedTable, creation_of
from tailrace.source.postgres.ddl_trigger import creation_of_triggers, has_triggers
from tailrace.source.postgres.options import SLOT_PREFIX, PostgresSettings
from tailrace.source.postgres.position import Slot
from tailrace.source.postgres.setup import VERSION_MIN, identity_remedy

__all__ = ["examine"]

_RETAINED_MANY = 10 << 30
_SAFE_LOW = 1 << 30
_NAMES_MAX = 10


def examine(url: str, settings: PostgresSettings) -> list[Finding]:
    """Return a finding for each thing that was checked. Where the server refuses us, that is the only one."""
    try:
        with closing(Catalog(url, settings)) as catalog:
            return [*_inside(catalog, settings)]
    except SourceError as error:
        return [Finding("access", Severity.PROBLEM, str(error), "do what the message says, then run doctor again")]


def _inside(catalog: Catalog, settings: PostgresSettings) -> Iterator[Finding]:
    yield _ok("access", f"connected to {catalog.database} as {catalog.user}")
    yield _version(catalog)
    yield _wal_level(catalog)
    yield _role(catalog)
    slots = catalog.slots()
    yield _free(catalog, "max_replication_slots", "pg_replication_slots", "replication slots")
    yield _free(catalog, "max_wal_senders", "pg_stat_replication", "senders of write-ahead log")
    yield _timeout(catalog, settings)
    yield _limit(catalog)
    yield from _publication(catalog, settings)
    yield _triggers(catalog, settings)
    for slot in slots:
        if slot.name == settings.slot or slot.name.startswith(SLOT_PREFIX):
            yield _slot(slot, catalog.database, settings.keep_max_bytes)


def _version(catalog: Catalog) -> Finding:
    shown = f"PostgreSQL {catalog.version // 10000}.{catalog.version % 10000}"
    if catalog.version < VERSION_MIN:
        return _problem("version", shown, "upgrade the server to version 14 or later")
    return _ok("version", shown)


def _wal_level(catalog: Catalog) -> Finding:
    level = catalog.setting("wal_level")
    if level == "logical":
        return _ok("wal_level", level)
    return _problem("wal_level", level, "ALTER SYSTEM SET wal_level = 'logical'; then restart the server")


def _role(catalog: Catalog) -> Finding:
    is_super, replicates = catalog.role_rights()
    if not replicates:
        remedy = f'ALTER ROLE "{catalog.user}" REPLICATION;'
        return _problem("role", f"{catalog.user} may not replicate", remedy)
    if is_super:
        remedy = "use a role that may do no more than LOGIN and REPLICATION: see docs/reference/postgresql.md"
        return _warning("role", f"{catalog.user} is a superuser", remedy)
    return _ok("role", f"{catalog.user} may replicate")


def _free(catalog: Catalog, setting: str, view: str, what: str) -> Finding:
    most = int(catalog.setting(setting))
    (used,) = catalog.rows(f"SELECT count(*) FROM {view}")[0]  # noqa: S608 - a constant of this module
    message = f"{used} of {most} {what} are in use"
    if used < most:
        return _ok(setting, message)
    remedy = f"ALTER SYSTEM SET {setting} = {most + 10}; then restart the server, or free one"
    return _problem(setting, message, remedy)


def _timeout(catalog: Catalog, settings: PostgresSettings) -> Finding:
    shown = catalog.setting("wal_sender_timeout")
    (milliseconds,) = catalog.rows("SELECT setting::bigint FROM pg_settings WHERE name = 'wal_sender_timeout'")[0]
    if milliseconds and milliseconds / 1000 <= settings.seconds("status_interval"):
        remedy = f"ALTER SYSTEM SET wal_sender_timeout = '60s'; or give a shorter status_interval than {shown}"
        return _problem("wal_sender_timeout", f"{shown}: shorter than status_interval", remedy)
    return _ok("wal_sender_timeout", shown)


def _limit(catalog: Catalog) -> Finding:
    shown = catalog.setting("max_slot_wal_keep_size")
    if shown == "-1":
        remedy = (
            "ALTER SYSTEM SET max_slot_wal_keep_size = '50GB'; or less than the disk can hold; SELECT pg_reload_conf();"
        )
        return _warning("max_slot_wal_keep_size", "no limit: a reader that is away can fill the server's disk", remedy)
    return _ok("max_slot_wal_keep_size", f"{shown}: a reader that falls further behind loses its place")


def _publication(catalog: Catalog, settings: PostgresSettings) -> Iterator[Finding]:
    name = settings.publication
    publication = catalog.publication(name)
    if publication is None:
        is_super, _ = catalog.role_rights()
        creation = f"{creation_of(name, settings)};"
        if is_super:
            yield _ok("publication", f"{name} does not exist; `tailrace serve` and `capture setup` make it")
        else:
            yield _problem("publication", f"{name} does not exist, and {catalog.user} may not make it", creation)
        tables = catalog.candidates(settings)
    else:
        tables = catalog.published(name)
        if publication.omitted:
            remedy = f"ALTER PUBLICATION \"{name}\" SET (publish = 'insert, update, delete, truncate');"
            yield _warning("publication", f"{name} leaves out: {', '.join(publication.omitted)}", remedy)
        else:
            yield _ok("publication", f"{name} has {len(tables)} tables")
    keyless = [table for table in tables if not table.has_identity]
    if keyless:
        message = f"no identity, so updates and deletes fail once published: {_names(keyless)}"
        yield _problem("replica identity", message, identity_remedy(keyless))
    partial = [table for table in tables if table.has_identity and table.identity != "f"]
    if partial:
        message = f"no row as it was before, but its key: {_names(partial)}"
        remedy = f"where readers need it, e.g. for row security: {identity_remedy(partial)}"
        yield Finding("before images", Severity.OK, f"{message}; {remedy}")
    elif tables and not keyless:
        yield _ok("before images", "all tables have the replica identity FULL")


def _triggers(catalog: Catalog, settings: PostgresSettings) -> Finding:
    if has_triggers(catalog):
        return _ok("schema changes", "event triggers announce them, with their statements")
    late = "they are announced with the first change of a table after them, without their statement"
    if settings.ddl_trigger and not catalog.role_rights()[0]:
        # As psql takes it: one line for each statement.
        remedy = "as a superuser: " + " ".join(f"{' '.join(one.split())};" for one in creation_of_triggers())
        return Finding("schema changes", Severity.OK, f"{late}; to have that, {remedy}")
    return _ok("schema changes", late)


def _names(tables: list[PublishedTable]) -> str:
    return ", ".join(table.shown for table in tables[:_NAMES_MAX]) + (" …" if len(tables) > _NAMES_MAX else "")


def _slot(slot: Slot, database: str, keep_max_bytes: int | None) -> Finding:
    message = f"{slot.name}: {slot.retained_bytes >> 20} MiB of write-ahead log are kept for it"
    drop = f"SELECT pg_drop_replication_slot('{slot.name}');"
    if slot.lost:
        return _problem("slot", f"{slot.name} was invalidated: {slot.lost}", f"{drop} and tailrace log reset")
    if slot.database != database:
        return _ok("slot", f"{message}; it is of database {slot.database}")
    if slot.two_phase:
        return _problem("slot", f"{slot.name} sends prepared transactions before their commit", drop)
    if keep_max_bytes is not None and slot.retained_bytes > keep_max_bytes:
        return _warning("slot", f"{message}, more than wal_keep_max", f"start its reader now, or drop it: {drop}")
    if slot.safe_bytes is not None and slot.safe_bytes < _SAFE_LOW:
        return _warning("slot", f"{message}; {slot.safe_bytes >> 20} MiB until it is lost", "start its reader now")
    if slot.retained_bytes > _RETAINED_MANY or slot.active_pid is None:
        remedy = f"start its reader; if it will not come back: {drop}"
        return _warning("slot", f"{message}; {'nobody reads it' if slot.active_pid is None else 'it lags'}", remedy)
    return _ok("slot", f"{message}; it is read now")


def _ok(check: str, message: str) -> Finding:
    return Finding(check, Severity.OK, message)


def _warning(check: str, message: str, remedy: str) -> Finding:
    return Finding(check, Severity.WARNING, message, remedy)


def _problem(check: str, message: str, remedy: str) -> Finding:
    return Finding(check, Severity.PROBLEM, message, remedy)
