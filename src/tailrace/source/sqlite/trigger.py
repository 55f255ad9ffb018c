"""The triggers of a captured table, as SQL text. Pure.

They run inside the writer's own SQLite, of any version and with any settings: plain SQL only, no JSON, no window
functions, nothing that depends on a pragma.
"""
# ruff: noqa: S608 (identifiers are quoted)

import re

from tailrace.source.sqlite.change_table import PREFIX, ChangeCode, insert_statements, quote
from tailrace.source.sqlite.schema import SqliteTable, Term, Unique
from tailrace.sql.sqlite.catalog import ROWID_NAMES, fold

__all__ = ["keeper_name", "keeper_statement", "row_cells", "trigger_statements"]

_SAFE_DEFAULT = re.compile(
    r"[+-]?\s*\d[\d.]*(?:e[+-]?\d+)?|0x[0-9a-f]+|x'[0-9a-f]*'|'(?:[^']|'')*'|CURRENT_(?:TIME|DATE|TIMESTAMP)|TRUE|FALSE",
    re.IGNORECASE,
)
"""Defaults that mean the same in a trigger. Others are left alone: a trigger that fails would stop the writer."""


def trigger_statements(table: SqliteTable, version: int) -> dict[str, str]:
    """Return the statements that make a table's triggers, by trigger name, in the order in which to make them."""
    name = quote(table.name)
    new = row_cells(table, "NEW")
    old = row_cells(table, "OLD")
    events = {
        "insert": (f"AFTER INSERT ON {name}", insert_statements(version, ChangeCode.INSERT, new)),
        "update": (f"AFTER UPDATE ON {name}", insert_statements(version, ChangeCode.UPDATE, old + new)),
        "delete": (f"AFTER DELETE ON {name}", insert_statements(version, ChangeCode.DELETE, old)),
        "insert_candidate": _insert_candidate(table, version),
        "update_candidate": _update_candidate(table, version),
    }
    statements = {}
    for event, (clause, body) in events.items():
        trigger = f"{PREFIX}{version}_{event}"
        statements[trigger] = f"CREATE TRIGGER {trigger} {clause} BEGIN {'; '.join(body)}; END"
    return statements


def row_cells(table: SqliteTable, row: str, *, defaults: bool = False, rowid: str | None = None) -> list[str]:
    """Return the SQL of each cell of a row: NEW, OLD, or a quoted table name.

    With `defaults`, a NULL that REPLACE would turn into the column's default is that default. `rowid` stands in for the
    cell that holds the row number.
    """
    cells = [] if table.key else [rowid or f"{row}.{table.rowid}"]
    for column in table.columns:
        cell = f"{row}.{quote(column.name)}"
        if rowid is not None and column.name == table.alias:
            cell = rowid
        elif defaults and column.not_null and column.default and _SAFE_DEFAULT.fullmatch(column.default):
            cell = f"ifnull({cell},{column.default})"
        cells.append(cell)
    return cells


def keeper_name(version: int) -> str:
    """Return the name of the index that `keeper_statement` makes."""
    return f"{PREFIX}{version}_keeper"


def keeper_statement(table: SqliteTable, version: int) -> str | None:
    """Return the statement for an index that holds nothing but stops VACUUM from changing row numbers, if it is needed.

    VACUUM gives new row numbers to tables that have neither an INTEGER PRIMARY KEY nor any index.
    """
    if table.key or table.indexed:
        return None
    column = next(column.name for column in table.columns if not column.generated)
    return f"CREATE INDEX {keeper_name(version)} ON {quote(table.name)}({quote(column)}) WHERE 0"


def _insert_candidate(table: SqliteTable, version: int) -> tuple[str, list[str]]:
    """Return the trigger before an insert.

    Where the new row has no number yet, SQLite gives -1 for it here. So a candidate that is in the way by its number
    carries the number, to be compared with the one the row has got; one that is in the way by an index carries NULL.
    """
    name = quote(table.name)
    by_index = [_clash(table, unique) for unique in table.uniques]
    by_rowid = [f"{name}.{table.rowid} = NEW.{table.rowid}"] if table.rowid is not None else []
    if table.key and table.alias is None:
        by_rowid = [f"NEW.{table.rowid} <> -1 AND {condition}" for condition in by_rowid]
    clause = f"BEFORE INSERT ON {name} WHEN {_any_exists(name, by_rowid + by_index)}"
    known = row_cells(table, name) + row_cells(table, "NEW", defaults=True)
    unknown = row_cells(table, name) + row_cells(table, "NEW", defaults=True, rowid="NULL")
    return clause, [
        *_candidates(version, ChangeCode.INSERT_CANDIDATE, known, name, by_rowid),
        *_candidates(version, ChangeCode.INSERT_CANDIDATE, unknown, name, by_index),
    ]


def _update_candidate(table: SqliteTable, version: int) -> tuple[str, list[str]]:
    name = quote(table.name)
    conditions = [_clash(table, unique) for unique in table.uniques]
    if table.rowid is not None:
        conditions.insert(0, f"{name}.{table.rowid} = NEW.{table.rowid}")
        other = f"{name}.{table.rowid} <> OLD.{table.rowid}"
    else:
        same = " AND ".join(f"{name}.{quote(column)} IS OLD.{quote(column)}" for column in table.key)
        other = f"NOT ({same})"
    conditions = [f"{condition} AND {other}" for condition in conditions]
    cells = row_cells(table, name) + row_cells(table, "NEW", defaults=True)
    clause = f"BEFORE UPDATE{_update_columns(table)} ON {name} WHEN {_any_exists(name, conditions)}"
    return clause, _candidates(version, ChangeCode.UPDATE_CANDIDATE, cells, name, conditions)


def _update_columns(table: SqliteTable) -> str:
    """Return the OF clause: the columns whose update can bring two rows into conflict; nothing when any may."""
    generated = {column.name for column in table.columns if column.generated}
    terms = [term for unique in table.uniques for term in unique.terms]
    if any(unique.where for unique in table.uniques) or any(
        not term.column or term.text in generated for term in terms
    ):
        return ""
    names = {fold(column.name) for column in table.columns}
    columns = [term.text for term in terms] + ([table.alias] if table.alias is not None else [])
    hidden = [name for name in ROWID_NAMES if name not in names] if table.rowid is not None else []
    return " OF " + ",".join([*(quote(column) for column in dict.fromkeys(columns)), *hidden])


def _any_exists(name: str, conditions: list[str]) -> str:
    return " OR ".join(f"EXISTS(SELECT 1 FROM {name} WHERE {condition})" for condition in conditions)


def _candidates(version: int, code: ChangeCode, cells: list[str], name: str, conditions: list[str]) -> list[str]:
    return [
        statement
        for condition in conditions
        for statement in insert_statements(version, code, cells, f" FROM {name} WHERE {condition}")
    ]


def _clash(table: SqliteTable, unique: Unique) -> str:
    """Return the condition that a row of the table and the NEW row agree in a unique index."""
    new = dict(zip((column.name for column in table.columns), _new_columns(table), strict=True))
    row = ",".join(f"{cell} AS {quote(column)}" for column, cell in new.items())
    parts = [_equal(table, term, new, row) for term in unique.terms]
    if unique.where is not None:
        parts += [f"({unique.where})", f"(SELECT ({unique.where}) FROM (SELECT {row}))"]
    return " AND ".join(parts)


def _equal(table: SqliteTable, term: Term, new: dict[str, str], row: str) -> str:
    collation = quote(term.collation)
    if term.column:
        return f"{quote(table.name)}.{quote(term.text)} = {new[term.text]} COLLATE {collation}"
    return f"({term.text}) = (SELECT ({term.text}) FROM (SELECT {row})) COLLATE {collation}"


def _new_columns(table: SqliteTable) -> list[str]:
    cells = row_cells(table, "NEW", defaults=True)
    return cells if table.key else cells[1:]
