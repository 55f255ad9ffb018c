"""What we ask the catalog of a PostgreSQL server: tables and types, publications, replication slots. Blocking."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import psycopg
from msgspec import Struct
from psycopg import sql
from psycopg.conninfo import make_conninfo

from tailrace.source.postgres.failure import translated
from tailrace.source.postgres.options import SLOT_PREFIX, PostgresSettings
from tailrace.source.postgres.pgoutput import Relation, RelationColumn
from tailrace.source.postgres.position import Slot, parse_lsn
from tailrace.source.postgres.table_shape import RelationFacts
from tailrace.source.postgres.type_info import ColumnFacts, TypeInfo

__all__ = ["OURS", "Catalog", "Publication", "PublishedTable", "creation_of"]

OURS = "made by tailrace"
"""Comment of a publication that capture has made, and may remove."""

_LOCKS = 0x7A11
"""Class of our advisory locks."""


class Publication(Struct, frozen=True):
    """A publication: whether capture made it, what it is for, and which changes it leaves out."""

    name: str
    ours: bool
    all_tables: bool
    omitted: tuple[str, ...] = ()


class PublishedTable(Struct, frozen=True):
    """A table of a publication. `identity` is its replica identity, and `has_identity` whether that gives a key."""

    oid: int
    namespace: str
    name: str
    identity: str
    has_identity: bool
    columns: tuple[str, ...] | None = None

    @property
    def shown(self) -> str:
        """Return its name for people, quoted for SQL."""
        return f'"{self.namespace}"."{self.name}"'


class Catalog:
    """A connection for questions. For one thread at a time."""

    def __init__(self, url: str, settings: PostgresSettings) -> None:
        """Connect.

        Raises:
            SourceStateError, SourceUnavailableError: The server refuses, or cannot be reached.
        """
        with translated():
            self._connection: psycopg.Connection[tuple[Any, ...]] = psycopg.connect(
                make_conninfo(url, **settings.conninfo(url)), autocommit=True
            )

    def close(self) -> None:
        """Disconnect. Safe to repeat."""
        self._connection.close()

    @property
    def version(self) -> int:
        """Return the version of the server, e.g. 150006."""
        return self._connection.info.server_version

    @property
    def database(self) -> str:
        """Return the name of the database."""
        return self._connection.info.dbname

    @property
    def user(self) -> str:
        """Return the role that is connected."""
        return self._connection.info.user

    def rows(self, statement: "str | sql.Composed", arguments: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Return the rows of a query.

        Raises:
            SourceStateError, SourceUnavailableError: The server refuses, or is away.
        """
        with translated():
            query = statement if isinstance(statement, sql.Composed) else sql.SQL(statement)
            return self._connection.execute(query, arguments or None).fetchall()

    def run(self, statement: sql.Composable) -> None:
        """Run a statement."""
        with translated():
            self._connection.execute(statement)  # type: ignore[call-overload]

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Make what runs inside one transaction."""
        with translated(), self._connection.transaction():
            yield

    def setting(self, name: str) -> str:
        """Return a setting of the server."""
        return str(self.rows("SELECT current_setting(%s)", [name])[0][0])

    def role_rights(self) -> tuple[bool, bool]:
        """Return whether the role is a superuser, and whether it may replicate."""
        query = "SELECT rolsuper, rolreplication OR rolsuper FROM pg_roles WHERE rolname = current_user"
        is_super, replicates = self.rows(query)[0]
        return bool(is_super), bool(replicates)

    # Publications

    def publication(self, name: str) -> Publication | None:
        """Return a publication; None where there is none of that name."""
        query = """
            SELECT obj_description(oid, 'pg_publication') = %s, puballtables, pubinsert, pubupdate, pubdelete,
                pubtruncate FROM pg_publication WHERE pubname = %s"""
        found = self.rows(query, [OURS, name])
        if not found:
            return None
        ours, all_tables, *kinds = found[0]
        words = ("insert", "update", "delete", "truncate")
        return Publication(
            name, bool(ours), bool(all_tables), tuple(word for word, on in zip(words, kinds, strict=True) if not on)
        )

    def create_publication(self, name: str, settings: PostgresSettings) -> None:
        """Make a publication for the tables that the settings name, or for all, and mark it as ours."""
        self.run(sql.SQL(creation_of(name, settings)))
        comment = sql.SQL("COMMENT ON PUBLICATION {} IS {}")
        self.run(comment.format(sql.Identifier(name), sql.Literal(OURS)))

    def drop_publication(self, name: str) -> None:
        """Remove a publication, if it is there."""
        self.run(sql.SQL("DROP PUBLICATION IF EXISTS {}").format(sql.Identifier(name)))

    def published(self, publication: str) -> list[PublishedTable]:
        """Return the tables of a publication."""
        columns = "attnames::text[]" if self.version >= 150000 else "NULL::text[]"
        return self._tables(
            f"SELECT schemaname, tablename, {columns} FROM pg_publication_tables WHERE pubname = %s",  # noqa: S608
            [publication],
        )

    def publishes_whole(self, publication: str, oid: int) -> bool:
        """Tell whether a publication has a table, with all columns that it can have.

        A table that is gone by now was in it if all tables are.
        """
        listed = "prattrs IS NOT NULL" if self.version >= 150000 else "false"
        query = f"""
            SELECT FROM pg_publication_tables t JOIN pg_namespace n ON n.nspname = t.schemaname
            JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = t.tablename
            WHERE t.pubname = %s AND c.oid = %s AND NOT EXISTS (
                SELECT FROM pg_publication_rel JOIN pg_publication p ON p.oid = prpubid
                WHERE p.pubname = t.pubname AND prrelid = c.oid AND {listed})"""  # noqa: S608 - constants of this module
        if self.rows(query, [publication, oid]):
            return True
        gone = """
            SELECT FROM pg_publication WHERE pubname = %s AND puballtables
                AND NOT EXISTS (SELECT FROM pg_class WHERE pg_class.oid = %s)"""
        return bool(self.rows(gone, [publication, oid]))

    def publishes_generated(self, publication: str) -> bool:
        """Tell whether a publication has columns that are generated and stored."""
        if self.version < 180000:
            return False
        query = "SELECT FROM pg_publication WHERE pubname = %s AND pubgencols = 's'"
        return bool(self.rows(query, [publication]))

    def candidates(self, settings: PostgresSettings) -> list[PublishedTable]:
        """Return the tables that a publication made with these settings would have."""
        wanted = table_paths(settings)
        found = self._tables(
            """SELECT nspname, relname, NULL::text[] FROM pg_class
            JOIN pg_namespace ON pg_namespace.oid = relnamespace
            WHERE relkind IN ('r', 'p') AND relpersistence = 'p' AND NOT relispartition
                AND nspname NOT IN ('pg_catalog', 'information_schema') AND NOT starts_with(nspname::text, 'pg_toast')
            """,
            [],
        )
        return [table for table in found if not wanted or (table.namespace, table.name) in wanted]

    def _tables(self, names: str, arguments: Sequence[object]) -> list[PublishedTable]:
        query = f"""
            SELECT c.oid, n.nspname::text, c.relname::text, c.relreplident, c.relreplident = 'f' OR EXISTS (
                SELECT FROM pg_index i WHERE i.indrelid = c.oid
                    AND CASE c.relreplident WHEN 'd' THEN i.indisprimary WHEN 'i' THEN i.indisreplident END), p.listed
            FROM ({names}) p(namespace, name, listed) JOIN pg_namespace n ON n.nspname = p.namespace
            JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = p.name
            ORDER BY n.nspname, c.relname"""  # noqa: S608 - constants of this module
        return [
            PublishedTable(oid, namespace, name, identity, bool(has), None if listed is None else tuple(listed))
            for oid, namespace, name, identity, has, listed in self.rows(query, arguments)
        ]

    # Replication slots

    def slots(self, *, like: str = SLOT_PREFIX) -> list[Slot]:
        """Return the slots of this database, and all whose name begins like this."""
        lost = (
            "COALESCE(invalidation_reason, CASE wal_status WHEN 'lost' THEN 'wal_status is lost' END)"
            if self.version >= 170000
            else "CASE WHEN conflicting THEN 'conflict with recovery' WHEN wal_status = 'lost' THEN 'wal removed' END"
            if self.version >= 160000
            else "CASE wal_status WHEN 'lost' THEN 'write-ahead log was removed' END"
        )
        end = "CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END"
        failover = "failover" if self.version >= 170000 else "false"
        query = f"""
            SELECT slot_name, COALESCE(plugin, ''), COALESCE(database, ''), COALESCE(confirmed_flush_lsn, '0/0')::text,
                COALESCE(restart_lsn, '0/0')::text, active_pid, COALESCE(two_phase, false), COALESCE({lost}, ''),
                temporary, COALESCE(pg_wal_lsn_diff({end}, restart_lsn), 0)::bigint, safe_wal_size,
                COALESCE(pg_wal_lsn_diff({end}, confirmed_flush_lsn), 0)::bigint, {failover}
            FROM pg_replication_slots WHERE database = current_database() OR starts_with(slot_name::text, %s)
            ORDER BY slot_name"""  # noqa: S608 - constants of this module
        return [
            Slot(name, plugin, database, parse_lsn(confirmed), parse_lsn(restart), *rest)
            for name, plugin, database, confirmed, restart, *rest in self.rows(query, [like])
        ]

    def slot(self, name: str) -> Slot | None:
        """Return a slot; None where there is none of that name."""
        return next((slot for slot in self.slots(like=name) if slot.name == name), None)

    def slot_creation(self, name: str, *, temporary: bool, failover: bool) -> str:
        """Return the statement that makes a slot; with `failover` standbys keep it, too, where the server can."""
        kept = (
            failover and not temporary and self.version >= 170000 and not self.rows("SELECT pg_is_in_recovery()")[0][0]
        )
        more = ", false, true" if kept else ""
        return f"SELECT pg_create_logical_replication_slot('{name}', 'pgoutput', {str(temporary).lower()}{more})"

    def create_slot(self, name: str, *, failover: bool) -> None:
        """Make a slot that lasts. Waits for the transactions that are open."""
        self.rows(self.slot_creation(name, temporary=False, failover=failover))

    def drop_slot(self, name: str) -> None:
        """Remove a slot."""
        self.rows("SELECT pg_drop_replication_slot(%s)", [name])

    # What belongs to a process

    def hold(self, name: str) -> bool:
        """Hold a name as long as this connection lives; return whether nobody else holds it."""
        return bool(self.rows("SELECT pg_try_advisory_lock(%s, hashtext(%s))", [_LOCKS, name])[0][0])

    def release(self, name: str) -> None:
        """Let go of a name."""
        self.rows("SELECT pg_advisory_unlock(%s, hashtext(%s))", [_LOCKS, name])

    # Tables and types

    def relations(self, tables: Sequence[PublishedTable]) -> list[Relation]:
        """Return tables as the server would describe them now in its stream."""
        oids = [table.oid for table in tables]
        columns: dict[int, list[RelationColumn]] = {}
        published = {table.oid: table.columns for table in tables}
        identities = {table.oid: table.identity for table in tables}
        keys = self._keys(oids)
        query = """
            SELECT attrelid, attname, atttypid, atttypmod, attgenerated <> '' FROM pg_attribute
            WHERE attrelid = ANY(%s) AND attnum > 0 AND NOT attisdropped ORDER BY attrelid, attnum"""
        for oid, name, type_oid, modifier, generated in self.rows(query, [oids]):
            listed = published[oid]
            # Before version 18, generated columns are not published, whatever the view says.
            if (listed is not None and name not in listed) or (generated and self.version < 180000):
                continue
            if generated and listed is None:
                continue
            primary, index = keys.get(oid, ((), ()))
            flagged = {"f": True, "d": name in primary, "i": name in index}.get(identities[oid], False)
            columns.setdefault(oid, []).append(RelationColumn(name, type_oid, modifier, flagged))
        return [
            Relation(table.oid, table.namespace, table.name, table.identity, tuple(columns.get(table.oid, ())))
            for table in tables
        ]

    def facts(self, relation: Relation, type_names: Mapping[int, str]) -> RelationFacts:
        """Return what is known of a table besides what the server's description says.

        A type that does not exist any more is known by its name in `type_names`, if there.
        """
        oids = [column.type_oid for column in relation.columns]
        modifiers = [column.type_modifier for column in relation.columns]
        query = """
            SELECT COALESCE(NULLIF(format_type(t.oid, t.modifier), '???'), '')
            FROM unnest(%s::oid[], %s::int[]) WITH ORDINALITY t(oid, modifier, place) ORDER BY place"""
        declared = [str(text) for (text,) in self.rows(query, [oids, modifiers])]
        types = self._types(oids)
        for oid in oids:
            if oid not in types:
                types[oid] = TypeInfo(oid, type_names.get(oid, f"type {oid}"), "b", "")
        primary, index = self._keys([relation.oid]).get(relation.oid, ((), ()))
        return RelationFacts(types, declared, self._columns(relation.oid), primary, index)

    def _columns(self, oid: int) -> dict[str, ColumnFacts]:
        query = """
            SELECT attname, NOT attnotnull, attgenerated <> '', CASE collname WHEN 'default' THEN datcollate
                ELSE collname END, attndims
            FROM pg_attribute LEFT JOIN pg_collation c ON c.oid = attcollation
            JOIN pg_database ON datname = current_database()
            WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped"""
        return {
            name: ColumnFacts(
                nullable=nullable,
                generated=generated,
                collation="" if collation is None or collation in _BY_CODE_POINTS else collation,
                dimensions=dimensions,
            )
            for name, nullable, generated, collation, dimensions in self.rows(query, [oid])
        }

    def _keys(self, oids: Sequence[int]) -> dict[int, tuple[tuple[str, ...], tuple[str, ...]]]:
        """Return the columns of primary keys, and of the indexes that are replica identities, in their order."""
        query = """
            SELECT indrelid, indisprimary, indisreplident, ARRAY(
                SELECT attname::text FROM unnest(indkey::int2[]) WITH ORDINALITY k(number, place)
                JOIN pg_attribute ON attrelid = indrelid AND attnum = k.number
                WHERE k.place <= indnkeyatts ORDER BY k.place)
            FROM pg_index WHERE indrelid = ANY(%s) AND (indisprimary OR indisreplident)"""
        found: dict[int, tuple[tuple[str, ...], tuple[str, ...]]] = {}
        for oid, is_primary, is_identity, names in self.rows(query, [list(oids)]):
            primary, index = found.get(oid, ((), ()))
            found[oid] = (tuple(names) if is_primary else primary, tuple(names) if is_identity else index)
        return found

    def _types(self, oids: Sequence[int]) -> dict[int, TypeInfo]:
        """Return types with those of their elements and those that domains are made of."""
        query = """
            WITH RECURSIVE needed(oid) AS (
                SELECT unnest(%s::oid[]) UNION
                SELECT unnest(ARRAY[typbasetype, CASE typoutput WHEN 'array_out'::regproc THEN typelem ELSE 0 END])
                FROM needed JOIN pg_type t ON t.oid = needed.oid)
            SELECT t.oid, format_type(t.oid, NULL), typtype, typname::text,
                CASE typoutput WHEN 'array_out'::regproc THEN typelem ELSE 0 END, typbasetype, typtypmod, typndims,
                typdelim, ARRAY(SELECT enumlabel::text FROM pg_enum WHERE enumtypid = t.oid ORDER BY enumsortorder),
                COALESCE((SELECT extname::text FROM pg_depend JOIN pg_extension e ON e.oid = refobjid
                    WHERE classid = 'pg_type'::regclass AND objid = t.oid AND deptype = 'e' LIMIT 1), '')
            FROM pg_type t JOIN needed ON needed.oid = t.oid"""
        return {
            row[0]: TypeInfo(
                oid=row[0],
                name=row[1],
                category=row[2],
                short_name=row[3],
                element=row[4],
                base=row[5],
                base_modifier=row[6],
                dimensions=row[7],
                delimiter=row[8],
                labels=tuple(row[9]),
                extension=row[10],
            )
            for row in self.rows(query, [list(oids)])
        }


_BY_CODE_POINTS = frozenset({"C", "POSIX", "C.UTF-8", "C.utf8", "ucs_basic", "pg_c_utf8"})


def table_paths(settings: PostgresSettings) -> set[tuple[str, str]]:
    """Return schema and name of the tables that the settings name; none means all."""
    found = set()
    for text in filter(None, (part.strip() for part in settings.tables.split(","))):
        schema, dot, name = text.rpartition(".")
        found.add((schema if dot else "public", name))
    return found


def creation_of(name: str, settings: PostgresSettings) -> str:
    """Return the statement that makes a publication."""
    tables = ", ".join(f'"{schema}"."{table}"' for schema, table in sorted(table_paths(settings)))
    root = "true" if settings.partition_root else "false"
    what = f"FOR TABLE {tables}" if tables else "FOR ALL TABLES"
    quoted = name.replace('"', '""')
    return f'CREATE PUBLICATION "{quoted}" {what} WITH (publish_via_partition_root = {root})'
