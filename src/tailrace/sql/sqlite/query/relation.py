"""A query taken apart: what stands in each FROM, how it is joined, and which columns come out.

Built by `tailrace.sql.sqlite.query.reader`. These are working objects of one analysis and change while it goes on.
"""

from collections.abc import Callable, Sequence

from msgspec import Struct, field
from sqlglot import exp

from tailrace.sql.sqlite.catalog import ROWID_NAMES, CatalogColumn, CatalogTable, Rowid, fold
from tailrace.sql.sqlite.query.condition import Condition, ReferenceColumn

__all__ = [
    "CommonTable",
    "Compound",
    "Derived",
    "FromItem",
    "Join",
    "JoinKind",
    "Node",
    "NotUnderstoodError",
    "Output",
    "Reference",
    "Relation",
    "Rows",
    "Scope",
    "SelectNode",
    "Surroundings",
    "base_item",
]

JoinKind = str
"""One of inner, left, right, full."""


class NotUnderstoodError(Exception):
    """The analysis cannot follow the query. Never leaves it: the query then depends on whole tables."""


class Reference:
    """One mention of a base table: which of its columns are read, and what a row must satisfy to matter."""

    def __init__(self, number: int, table: CatalogTable) -> None:
        self.number = number
        self.table = table
        self.read: set[str] = set()
        self.hidden_rowid = False
        self.conditions: tuple[Condition, ...] = ()

    def mark(self, column: CatalogColumn) -> None:
        """Note that a column is read. A generated column is computed from others: then all are."""
        if column.generated:
            self.mark_all()
        else:
            self.read.add(column.name)

    def mark_all(self) -> None:
        """Note that every column is read. Those computed from the others change only with them."""
        self.read.update(column.name for column in self.table.columns if not column.generated)

    def mark_rowid(self) -> None:
        """Note that the hidden row number is read."""
        self.hidden_rowid = True
        self.mark_all()


class Output(Struct):
    """One column that a source or a query offers.

    `column` is the base column that it hands through unchanged, if it does. `demand` notes that it is used.
    """

    name: str | None
    demand: Callable[[], None]
    column: ReferenceColumn | None = None


class FromItem(Struct):
    """One item of a FROM under the name by which columns are qualified; empty where it has none.

    `outputs` are the columns that a star stands for, `extra` those that must be named (row numbers).
    """

    name: str
    outputs: list[Output]
    extra: list[Output] = field(default_factory=list)

    def find(self, column: str) -> list[Output]:
        """Return the columns of that folded name."""
        named = [output for output in self.outputs if output.name == column]
        return named or [output for output in self.extra if output.name == column]

    def nameless(self) -> list[Output]:
        """Return the columns whose name we do not know. The second of two with one name gets a name from SQLite."""
        names = [output.name for output in self.outputs]
        return [
            output for number, output in enumerate(self.outputs) if output.name is None or output.name in names[:number]
        ]


class Derived(Struct):
    """A sub-query, view or common table expression in a FROM."""

    node: "Node"


class Join(Struct):
    """Two relations joined. `equal` are the columns of a USING or NATURAL, matched by name."""

    kind: JoinKind
    left: "Relation"
    right: "Relation"
    on: exp.Expr | None
    equal: list[tuple[Output, Output]]


Relation = Reference | Derived | Join


class Scope:
    """Where the names of one SELECT are looked up: its sources, its column aliases, then the scope around it."""

    def __init__(self, around: "Scope | None") -> None:
        self.around = around
        self.sources: list[FromItem] = []
        self.aliases: dict[str, list[Output]] = {}
        self.merged: dict[str, Output] = {}

    def named(self, qualifier: str) -> list[FromItem]:
        """Return the sources of that folded name; all if it is empty."""
        return [source for source in self.sources if not qualifier or source.name == qualifier]

    def local(self, name: str, qualifier: str) -> list[Output]:
        """Return what a folded column name stands for among the sources of this scope; empty if nothing.

        A column that was joined by name is `merged`: without a qualifier it stands for one column, not for two.
        """
        if not qualifier and name in self.merged:
            return [self.merged[name]]
        return [output for source in self.named(qualifier) for output in source.find(name)]

    def find(self, name: str, qualifier: str) -> list[Output]:
        """Return all that a folded column name can stand for, the innermost scope that has it; empty if nothing."""
        possible: list[Output] = []
        scope: Scope | None = self
        while scope is not None:
            found = scope.local(name, qualifier)
            if not found and not qualifier:
                found = scope.aliases.get(name, [])
            if found:
                return possible + found
            possible += [output for source in scope.named(qualifier) for output in source.nameless()]
            scope = scope.around
        return possible


class SelectNode(Struct):
    """One SELECT.

    `plain` tells that each row of the FROM that passes the WHERE is one row of the result: nothing is grouped, made
    distinct, cut off or computed over several rows.
    """

    tree: exp.Select
    scope: Scope
    around: "Surroundings"
    relation: Relation | None
    outputs: list[Output]
    plain: bool


class Compound(Struct):
    """Several queries joined by UNION, INTERSECT or EXCEPT.

    `bag` tells that each row of a branch is one row of the result: UNION ALL, and nothing else. `limits` are the
    expressions of LIMIT and OFFSET.
    """

    branches: list["Node"]
    outputs: list[Output]
    bag: bool
    limits: list[exp.Expr]
    scope: Scope
    around: "Surroundings"


class Rows(Struct):
    """VALUES, or the rows that a recursive common table expression has so far: no table stands behind it."""

    outputs: list[Output]
    expressions: Sequence[exp.Expr]
    scope: Scope
    around: "Surroundings"


class Surroundings(Struct):
    """What can be seen from a query: the common table expressions by name."""

    tables: dict[str, "CommonTable"] = field(default_factory=dict)


class CommonTable(Struct):
    """The definition of one common table expression. `open` while it is being taken apart: then it names itself."""

    tree: exp.CTE
    around: Surroundings
    scope: Scope | None
    open: bool = False
    recursive: bool = False


Node = SelectNode | Compound | Rows


def base_item(reference: Reference, name: str) -> FromItem:
    """Return a base table as an item of a FROM."""
    table = reference.table

    def output(column: CatalogColumn, spelled: str) -> Output:
        usable = column.binary and not column.generated
        known = ReferenceColumn(reference.number, column.name, column.affinity) if usable else None
        return Output(spelled, lambda: reference.mark(column), known)

    outputs = [output(column, fold(column.name)) for column in table.columns]
    taken = {item.name for item in outputs}
    names = [rowid for rowid in ROWID_NAMES if rowid not in taken]
    extra: list[Output] = []
    if table.rowid is Rowid.COLUMN:
        numbered = table.column(table.rowid_column)
        assert numbered is not None
        extra = [output(numbered, rowid) for rowid in names]
    elif table.rowid is not Rowid.NONE:
        extra = [Output(rowid, reference.mark_rowid) for rowid in names]
    return FromItem(name, outputs, extra)
