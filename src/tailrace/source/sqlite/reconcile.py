"""Fits capture to the schema as it is now: triggers, table versions, and the rows that no trigger saw.

Everything happens in the caller's write transaction, so no change can fall between the old triggers and the new ones.
What it finds out is written into the change table like any other change; every reader meets it there, in order:

* a new table: a schema note, then its rows as inserts;
* a table that is gone: a schema note. A renamed table is gone under its old name and new under the other one;
* changed columns: a schema note, then an update for each row that a reader would otherwise know wrongly: one that has a
  value under a new name. Removing a column changes no row: the schema says that it is gone. All rows follow when a name
  comes back that the table had before: whoever kept the old values must learn the new ones;
* other views, on which results of queries depend: a schema note for one table, if none was written anyway. An index
  changes no result and is noted nowhere; whoever minds indexes looks at the schema's version.
"""
# ruff: noqa: S608 (identifiers are quoted, values are bound)

import hashlib

import apsw

from tailrace.source.sqlite.change_table import (
    CAPTURE,
    CELLS_MAX,
    CHANGE,
    TABLE,
    ChangeCode,
    cell_names,
    header,
    insert_statements,
    quote,
)
from tailrace.source.sqlite.registry import (
    Capture,
    load_versions,
    next_numbers,
    note,
    read_outline,
    save_outline,
    save_version,
    window,
)
from tailrace.source.sqlite.schema import SqliteSchema, SqliteTable, read_schema
from tailrace.source.sqlite.table_version import TableVersion, version_of
from tailrace.source.sqlite.trigger import keeper_name, keeper_statement, row_cells, trigger_statements

__all__ = ["drop_triggers", "reconcile", "width_of"]

DROPPED = 0
PRESENT = 1


def reconcile(
    connection: apsw.Connection, capture: Capture, *, first: bool = False, held: frozenset[int] = frozenset()
) -> None:
    """Fit capture to the schema. On the `first` run, rows that are there already are taken as known.

    `held` are versions whose triggers the caller has dropped itself: their tables are the same as before.
    """
    schema = read_schema(connection)
    newest = window(connection)[1]
    current: dict[str, TableVersion] = {}
    for version in load_versions(connection, live=True).values():
        own = schema.own_triggers(version.version)
        alive = version.version in held or any(trigger.table == version.name for trigger in own)
        if alive and version.name in schema.tables:
            current[version.name] = version
        else:
            _retire(connection, schema, version.version)
            note(connection, version.version, ChangeCode.SCHEMA, DROPPED)
    _widen(connection, capture.width, schema)
    for name, table in schema.tables.items():
        known = current.get(name)
        if known is None:
            _adopt(connection, schema, table, first=first)
        else:
            _refit(connection, schema, table, known)
    _note_outline(connection, silent=first or window(connection)[1] != newest)
    connection.execute(f"UPDATE {CAPTURE} SET schema_version = ?", (int(connection.pragma("schema_version")),))


def width_of(schema: SqliteSchema) -> int:
    """Return how many cells a row of the change table needs for the widest table."""
    cells = [2 * (len(table.columns) + (not table.key)) for table in schema.tables.values()]
    return min(max(cells, default=1), CELLS_MAX)


def drop_triggers(connection: apsw.Connection, schema: SqliteSchema, version: int) -> None:
    """Remove our triggers and index of a table version."""
    for trigger in schema.own_triggers(version):
        connection.execute(f"DROP TRIGGER {quote(trigger.name)}")
    if keeper_name(version) in schema.keepers:
        connection.execute(f"DROP INDEX {quote(keeper_name(version))}")


def _note_outline(connection: apsw.Connection, *, silent: bool) -> None:
    """Keep what views look like; note for the oldest table that they changed, unless `silent`."""
    described = connection.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'view' ORDER BY name").fetchall()
    outline = hashlib.sha256(repr(described).encode()).hexdigest()
    if outline == read_outline(connection):
        return
    save_outline(connection, outline)
    live = load_versions(connection, live=True)
    if live and not silent:
        note(connection, min(live), ChangeCode.SCHEMA, PRESENT)


def _retire(connection: apsw.Connection, schema: SqliteSchema, version: int) -> None:
    drop_triggers(connection, schema, version)
    connection.execute(f"UPDATE {TABLE} SET live = 0 WHERE v = ?", (version,))


def _widen(connection: apsw.Connection, width: int, schema: SqliteSchema) -> None:
    needed = width_of(schema)
    for name in cell_names(needed)[width:]:
        connection.execute(f"ALTER TABLE {CHANGE} ADD COLUMN {name}")
    if needed > width:
        connection.execute(f"UPDATE {CAPTURE} SET width = ?", (needed,))


def _install(connection: apsw.Connection, schema: SqliteSchema, table: SqliteTable, version: TableVersion) -> None:
    for statement in trigger_statements(table, version.version).values():
        connection.execute(statement)
    keeper = keeper_statement(table, version.version)
    if keeper is not None:
        connection.execute(keeper)
    save_version(connection, version, user_triggers=bool(schema.user_triggers(table.name)))


def _adopt(connection: apsw.Connection, schema: SqliteSchema, table: SqliteTable, *, first: bool) -> None:
    version = version_of(table, *next_numbers(connection, table.name))
    _install(connection, schema, table, version)
    if not first:
        note(connection, version.version, ChangeCode.SCHEMA, PRESENT)
        _copy(connection, table, version.version, ChangeCode.INSERT, row_cells(table, quote(table.name)))


def _refit(connection: apsw.Connection, schema: SqliteSchema, table: SqliteTable, known: TableVersion) -> None:
    fresh = version_of(table, known.version, known.number)
    if not fresh.same_shape(known):
        _retire(connection, schema, known.version)
        fresh = version_of(table, *next_numbers(connection, table.name))
        _install(connection, schema, table, fresh)
        note(connection, fresh.version, ChangeCode.SCHEMA, PRESENT)
        _correct(connection, table, known, fresh)
    elif _fits(schema, table, known.version):
        save_version(connection, fresh, user_triggers=bool(schema.user_triggers(table.name)))
    else:
        drop_triggers(connection, schema, known.version)
        _install(connection, schema, table, fresh)


def _fits(schema: SqliteSchema, table: SqliteTable, version: int) -> bool:
    """Return whether our triggers are as they should be and newer than the user's, so that they fire first."""
    own = schema.own_triggers(version)
    newest = max((trigger.age for trigger in schema.user_triggers(table.name)), default=-1)
    return (
        {trigger.name: trigger.sql for trigger in own} == trigger_statements(table, version)
        and all(trigger.age > newest for trigger in own)
        and (keeper_statement(table, version) is not None) == (keeper_name(version) in schema.keepers)
    )


def _correct(connection: apsw.Connection, table: SqliteTable, known: TableVersion, fresh: TableVersion) -> None:
    """Add an update for each row that readers of the old version know wrongly.

    A reader carries its values over by name, and takes a column that it did not know as NULL; the old image of an
    update says the same. Our triggers name every column and so forbid to drop one, and `exec_ddl` fits capture around a
    statement that drops one. So either columns were removed and nothing else, or each kept its place, with perhaps
    another name and new ones behind it.
    """
    names = [column.name for column in known.columns]
    if len(fresh.columns) < len(names):
        return
    versions = [version for version in load_versions(connection, live=False).values() if version.name == known.name]
    former = {column.name for version in versions if version.version != fresh.version for column in version.columns}
    new = row_cells(table, quote(table.name))
    old = list(new)
    hidden = int(fresh.hidden_rowid)
    differs: list[str] = []
    renamed = False
    for place, column in enumerate(table.columns):
        if names[place : place + 1] == [column.name]:
            continue
        renamed |= place < len(names)
        cell = new[place + hidden]
        in_key = column.name in table.key
        if not in_key:  # a key identifies its row in both images, under whichever name
            old[place + hidden] = new[names.index(column.name) + hidden] if column.name in names else "NULL"
        differs.append("1" if in_key or column.name in former else f"{cell} IS NOT NULL")
    if not differs:
        return
    where = f"({' OR '.join(differs)})"
    added = table.columns[len(names) :]
    bare = all(column.default is None and not column.generated and column.name not in former for column in added)
    if not renamed and bare and 2 * known.cells <= CELLS_MAX:
        where += f" AND {_written_through(table, known)}"
    _copy(connection, table, fresh.version, ChangeCode.UPDATE, old + new, f" WHERE {where}")


def _written_through(table: SqliteTable, known: TableVersion) -> str:
    """Return the condition that a row was written through the triggers of the old version."""
    names = [f"{quote(table.name)}.{quote(name)}" for name in known.key] or [f"{quote(table.name)}.{table.rowid}"]
    inserted = ",".join(f"c{cell}" for cell in known.key_cells)
    updated = ",".join(f"c{known.cells + cell}" for cell in known.key_cells)
    row = names[0] if len(names) == 1 else f"({','.join(names)})"
    return (
        f"{row} IN (SELECT {inserted} FROM {CHANGE} WHERE h = {header(known.version, ChangeCode.INSERT)} "
        f"UNION ALL SELECT {updated} FROM {CHANGE} WHERE h = {header(known.version, ChangeCode.UPDATE)})"
    )


def _copy(
    connection: apsw.Connection, table: SqliteTable, version: int, code: ChangeCode, cells: list[str], where: str = ""
) -> None:
    """Write a change for each row of a table that meets a condition."""
    source = f" FROM {quote(table.name)}{where}"
    if len(cells) <= CELLS_MAX:
        (statement,) = insert_statements(version, code, cells, source)
        connection.execute(statement)
        return
    identity = [table.rowid] if table.rowid is not None else [quote(column) for column in table.key]
    match = " AND ".join(f"{column} IS ?" for column in identity)
    parts = insert_statements(version, code, cells, f" FROM {quote(table.name)} WHERE {match}")
    for key in connection.execute(f"SELECT {','.join(identity)}{source}").fetchall():
        for part in parts:
            connection.execute(part, key)
