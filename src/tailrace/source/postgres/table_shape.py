"""How the changes of one table are written down: its schema, and what makes keys and images of its cells. Pure.

A shape is made of a `Relation` message, which says what columns were called and of which type when the change was made,
and of what the catalog knows beyond that now: nullability, collation, the order of the key's columns, types by name.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec import json as msgspec_json

from tailrace.model.number import SchemaId
from tailrace.model.table import Column, Identity, TableName, TableSchema
from tailrace.source.postgres.frame import compiled
from tailrace.source.postgres.pgoutput import UNCHANGED, Cells, Relation, Unchanged
from tailrace.source.postgres.type_info import ColumnFacts, Encoder, TypeInfo, column_of, encoder_of, way_of

__all__ = ["DEFAULT_SCHEMA", "DIALECT", "RelationFacts", "TableShape", "quoted_name", "schema_of", "shape_of"]

DIALECT = "postgresql"
DEFAULT_SCHEMA = "public"


class RelationFacts(Struct, frozen=True):
    """What the catalog knows of a table and of the types in it, now.

    `declared` has the names of types with their modifiers, in the order of the relation's columns.
    """

    types: Mapping[int, TypeInfo]
    declared: Sequence[str]
    columns: Mapping[str, ColumnFacts]
    primary_key: tuple[str, ...] = ()
    identity_index: tuple[str, ...] = ()


class TableShape:
    """Makes keys and images of the rows of one table. The methods run once for each change.

    Rows are written by templates: `{"id":%b,"name":%b}` takes the natural forms of all cells at once.
    """

    def __init__(self, schema: TableSchema, number: SchemaId, encoders: Sequence[Encoder]) -> None:
        self.schema = schema
        self.number = number
        self.count = len(schema.columns)
        self.is_whole_row = schema.identity is Identity.WHOLE_ROW
        names = [column.name for column in schema.columns]
        members = [b"%b:" % msgspec_json.encode(name) for name in names]
        self._columns = tuple(zip(members, encoders, strict=True))
        self._encoders = tuple(encoders)
        self._image = _template(members)
        self._key = tuple(names.index(name) for name in schema.key_names)
        self._key_encoders = [(place, encoders[place]) for place in self._key]
        self._key_text = b"[%b]" % b",".join([b"%b"] * len(self._key))
        self._key_image = _template([members[place] for place in self._key])
        columns = tuple((member, encode, way_of(encode)) for member, encode in self._columns)
        self.plan = None if compiled is None else compiled.make_plan(number, columns, self._key, self.is_whole_row)
        """The same for the compiled helper, which makes all of a change at once; None where it does not."""

    def image(self, cells: Cells) -> bytes:
        """Return the image of a row; cells that were not sent are left out."""
        if UNCHANGED in cells:
            pairs = zip(cells, self._columns, strict=True)
            sent = [member + _natural(cell, encode) for cell, (member, encode) in pairs if cell is not UNCHANGED]
            return b"{%b}" % b",".join(sent)
        encoded = [
            b"null" if cell is None else encode(cell)  # type: ignore[arg-type]
            for cell, encode in zip(cells, self._encoders, strict=True)
        ]
        return self._image % tuple(encoded)

    def key(self, cells: Cells) -> bytes:
        """Return the key of a row."""
        return self._key_text % tuple([_natural(cells[place], encode) for place, encode in self._key_encoders])

    def key_image(self, cells: Cells) -> bytes:
        """Return an image that has the columns of the key alone."""
        return self._key_image % tuple([_natural(cells[place], encode) for place, encode in self._key_encoders])

    def filled(self, new: Cells, old: Cells, *, key_alone: bool) -> Cells:
        """Return a row with the cells that were not sent as the row before has them; of a key, those of the key."""
        if UNCHANGED not in new:
            return new
        places = set(self._key) if key_alone else range(self.count)
        return [old[at] if cell is UNCHANGED and at in places else cell for at, cell in enumerate(new)]


def _template(members: Sequence[bytes]) -> bytes:
    """Return a template of an object with these members."""
    return b"{%b}" % b",".join([member.replace(b"%", b"%%") + b"%b" for member in members])


def _natural(cell: bytes | Unchanged | None, encode: Encoder) -> bytes:
    return b"null" if cell is None or isinstance(cell, Unchanged) else encode(cell)


def schema_of(source: str, relation: Relation, facts: RelationFacts) -> TableSchema:
    """Return the schema of a table as a relation message has it."""
    columns = tuple(
        column_of(
            column.name,
            facts.types[column.type_oid],
            facts.types,
            declared=declared,
            facts=facts.columns.get(column.name),
        )
        for column, declared in zip(relation.columns, facts.declared, strict=True)
    )
    identity, key = _identity(relation, facts)
    schema = "" if relation.namespace == DEFAULT_SCHEMA else relation.namespace
    table = TableName(source, relation.name, schema)
    return TableSchema(table, 1, columns, key, _ddl(relation, columns, key), DIALECT, identity)


def shape_of(schema: TableSchema, number: SchemaId, relation: Relation, facts: RelationFacts) -> TableShape:
    """Return what writes down the changes of a table."""
    pairs = zip(relation.columns, schema.columns, strict=True)
    encoders = [encoder_of(column, facts.types[sent.type_oid], facts.types) for sent, column in pairs]
    return TableShape(schema, number, encoders)


def _identity(relation: Relation, facts: RelationFacts) -> tuple[Identity, tuple[str, ...]]:
    """Return what tells rows apart, and the columns of the key.

    The message says which columns are sent of a row as it was. With FULL those are all, and only the catalog knows the
    primary key; where that is of columns which the message does not have, the whole row is the key.
    """
    names = [column.name for column in relation.columns]
    flagged = tuple(column.name for column in relation.columns if column.identity)
    match relation.replica_identity:
        case "f" if facts.primary_key and set(facts.primary_key) <= set(names):
            return Identity.PRIMARY_KEY, facts.primary_key
        case "f" if names:
            return Identity.WHOLE_ROW, ()
        case "d" if flagged:
            return Identity.PRIMARY_KEY, _in_order(flagged, facts.primary_key)
        case "i" if flagged:
            return Identity.UNIQUE_INDEX, _in_order(flagged, facts.identity_index)
        case _:
            return Identity.NONE, ()


def _in_order(flagged: tuple[str, ...], index: tuple[str, ...]) -> tuple[str, ...]:
    """Return columns in the order of their index, where that still has the same ones."""
    return index if set(index) == set(flagged) else flagged


def _ddl(relation: Relation, columns: Sequence[Column], key: Sequence[str]) -> str:
    """Return a statement that makes a table of these columns. It is derived: nobody has run it like this."""
    parts = [f"{_quoted(one.name)} {one.declared}{'' if one.nullable else ' NOT NULL'}" for one in columns]
    if key:
        parts.append(f"PRIMARY KEY ({', '.join(map(_quoted, key))})")
    schema = "" if relation.namespace == DEFAULT_SCHEMA else f"{_quoted(relation.namespace)}."
    return f"CREATE TABLE {schema}{_quoted(relation.name)} ({', '.join(parts)})"


def quoted_name(table: TableName) -> str:
    """Return the name of a table as SQL has it."""
    return f"{_quoted(table.schema)}.{_quoted(table.name)}" if table.schema else _quoted(table.name)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
