"""One version of a captured table, as the rows of the change table refer to it. Pure."""

from msgspec import Struct, structs
from msgspec import json as msgspec_json

from tailrace.model.table import Column, Identity, TableName, TableSchema
from tailrace.source.sqlite.schema import SqliteTable
from tailrace.sql.sqlite.affinity import columns_with_facts

__all__ = ["TableVersion", "decode_version", "encode_version", "version_of"]


class TableVersion(Struct, frozen=True):
    """How to read the cells of a change.

    The cells of a row are its columns in order; where the key is the hidden row number, that comes first. `number`
    counts the versions of the table's name from 1.
    """

    version: int
    name: str
    number: int
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    ddl: str
    rowid_cell: int | None
    """Cell that holds the row number, whether hidden or a column; SQLite may not know it yet before an insert."""
    unique_cells: tuple[int, ...] | None
    """Cells that decide which rows stand in each other's way; None when any cell may."""
    facts: bool = False
    """Whether its columns tell their collations; those of versions that were kept earlier are in the DDL alone."""

    @property
    def hidden_rowid(self) -> bool:
        """Return whether the first cell is the hidden row number."""
        return not self.key

    @property
    def cells(self) -> int:
        """Return the number of cells of a row."""
        return len(self.columns) + self.hidden_rowid

    @property
    def key_cells(self) -> tuple[int, ...]:
        """Return the cells of the key in key order."""
        if self.hidden_rowid:
            return (0,)
        places = {column.name: place for place, column in enumerate(self.columns)}
        return tuple(places[name] for name in self.key)

    def schema(self, source: str, number: int) -> TableSchema:
        """Return this version as the log keeps it."""
        identity = Identity.ROW_NUMBER if self.hidden_rowid else Identity.PRIMARY_KEY
        return TableSchema(TableName(source, self.name), number, self.columns, self.key, self.ddl, identity=identity)

    def same_shape(self, other: "TableVersion") -> bool:
        """Return whether nothing differs that a reader of the log can see."""
        return (self.name, self.columns, self.key, self.ddl) == (other.name, other.columns, other.key, other.ddl)


def version_of(table: SqliteTable, version: int, number: int) -> TableVersion:
    """Return a version of a table as it is now."""
    key = table.key
    hidden = 0 if key else 1
    places = {column.name: place + hidden for place, column in enumerate(table.columns)}
    rowid_cell = 0 if hidden else (places[table.alias] if table.alias is not None else None)
    plain = tuple(
        tuple(places[term.text] for term in unique.terms)
        for unique in table.uniques
        if unique.where is None and all(term.column for term in unique.terms)
    )
    generated = {places[column.name] for column in table.columns if column.generated}
    known = len(plain) == len(table.uniques) and not any(generated.intersection(cells) for cells in plain)
    cells = {cell for unique in plain for cell in unique} | ({rowid_cell} if rowid_cell is not None else set())
    return TableVersion(
        version,
        table.name,
        number,
        table.model_columns,
        key,
        table.ddl,
        rowid_cell,
        tuple(sorted(cells)) if known else None,
        facts=True,
    )


def encode_version(version: TableVersion) -> str:
    """Return the text that the database keeps."""
    return msgspec_json.encode(version).decode()


def decode_version(text: str) -> TableVersion:
    """Return the version that a text stands for."""
    version = msgspec_json.decode(text, type=TableVersion)
    if version.facts:
        return version
    return structs.replace(version, columns=columns_with_facts(version.columns, version.ddl))
