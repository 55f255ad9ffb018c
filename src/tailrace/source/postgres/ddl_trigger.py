"""Event triggers that announce schema changes in the stream, each in the transaction that makes it. Blocking.

Only superusers may make them; without them, schema changes are noticed at the first change of a table after them.

A statement of a user must not fail because of them. So they read the catalog, which everyone may, look whether the
user may write a message, and bound its size. They do not catch errors: that would make a subtransaction, and the server
gives the message of one behind the changes that come after it.
"""

from psycopg import sql

from tailrace.model.errors import SourceStateError
from tailrace.source.postgres.catalog import OURS, Catalog
from tailrace.source.postgres.ddl_message import DDL_PREFIX

__all__ = ["creation_of_triggers", "drop_triggers", "ensure_triggers", "has_triggers"]

_FUNCTION = "public.tailrace_announce_ddl()"
_TRIGGERS = {"tailrace_ddl": "ddl_command_end", "tailrace_drop": "sql_drop"}
_SQL_CHARACTERS_MAX = 100_000
_BODY = f"""
CREATE OR REPLACE FUNCTION {_FUNCTION} RETURNS event_trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $tailrace$
DECLARE
    found jsonb;
BEGIN
    IF NOT (SELECT bool_and(has_function_privilege(oid, 'EXECUTE')) FROM pg_proc
            WHERE proname = 'pg_logical_emit_message') THEN
        RETURN;
    END IF;
    IF tg_event = 'sql_drop' THEN
        SELECT jsonb_build_object('dropped', jsonb_agg(jsonb_build_object(
            'oid', objid::bigint, 'schema', schema_name, 'name', object_name)))
        INTO found FROM pg_event_trigger_dropped_objects()
        WHERE object_type = 'table' AND NOT is_temporary HAVING count(*) > 0;
    ELSE
        SELECT jsonb_build_object('tables', jsonb_agg(jsonb_build_object(
            'oid', c.oid::bigint, 'schema', n.nspname, 'name', c.relname, 'identity', c.relreplident,
            'columns', COALESCE((
                SELECT jsonb_agg(jsonb_build_array(a.attname, a.atttypid::bigint, a.atttypmod, a.attgenerated,
                    CASE c.relreplident WHEN 'f' THEN true WHEN 'n' THEN false ELSE EXISTS (
                        SELECT FROM pg_index i
                        WHERE i.indrelid = c.oid AND a.attnum = ANY((i.indkey::int2[])[0:i.indnkeyatts - 1])
                            AND CASE c.relreplident WHEN 'd' THEN i.indisprimary ELSE i.indisreplident END)
                    END) ORDER BY a.attnum)
                FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped), '[]'))))
        INTO found
        FROM (SELECT DISTINCT objid FROM pg_event_trigger_ddl_commands() WHERE classid = 'pg_class'::regclass) d
        JOIN pg_class c ON c.oid = d.objid JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE c.relkind IN ('r', 'p') AND c.relpersistence = 'p' HAVING count(*) > 0;
    END IF;
    IF found IS NOT NULL THEN
        PERFORM pg_logical_emit_message(true, '{DDL_PREFIX}', (found || jsonb_build_object(
            'sql', left(current_query(), {_SQL_CHARACTERS_MAX})))::text);
    END IF;
END $tailrace$"""  # noqa: S608 - constants of this module


def creation_of_triggers() -> list[str]:
    """Return the statements that make the function and the triggers."""
    made = [_BODY, f"COMMENT ON FUNCTION {_FUNCTION} IS '{OURS}'"]
    for name, event in _TRIGGERS.items():
        made.append(f"CREATE EVENT TRIGGER {name} ON {event} EXECUTE FUNCTION {_FUNCTION}")
    return made


def has_triggers(catalog: Catalog) -> bool:
    """Tell whether all triggers are there, and work."""
    query = "SELECT count(*) FROM pg_event_trigger WHERE evtname = ANY(%s) AND evtenabled <> 'D'"
    return bool(catalog.rows(query, [list(_TRIGGERS)])[0][0] == len(_TRIGGERS))


def ensure_triggers(catalog: Catalog) -> bool:
    """Make the triggers where they are missing and the role may; return whether they are there."""
    if has_triggers(catalog):
        return True
    if not catalog.role_rights()[0]:
        return False
    try:
        with catalog.transaction():
            _drop(catalog)
            for statement in creation_of_triggers():
                catalog.run(sql.SQL(statement))
    except SourceStateError:  # a server that lets even superusers of a cloud not do it
        return False
    return True


def drop_triggers(catalog: Catalog) -> bool:
    """Remove the triggers; return whether there were any."""
    query = """
        SELECT count(*) FROM pg_proc WHERE oid = to_regprocedure(%s) AND obj_description(oid, 'pg_proc') = %s"""
    if not catalog.rows(query, [_FUNCTION, OURS])[0][0]:
        return False
    with catalog.transaction():
        _drop(catalog)
    return True


def _drop(catalog: Catalog) -> None:
    for name in _TRIGGERS:
        catalog.run(sql.SQL(f"DROP EVENT TRIGGER IF EXISTS {name}"))
    catalog.run(sql.SQL(f"DROP FUNCTION IF EXISTS {_FUNCTION}"))
