"""Random databases, queries and writes for SQLite, from a seed. Used by the soundness test alone."""

from random import Random

COLUMN_NAMES = ["a", "b", "c", "d", "e"]
TYPES = ["INTEGER", "INTEGER", "TEXT", "TEXT", "REAL", "NUMERIC", "BLOB", "", "DATE", "TEXT COLLATE NOCASE", "INT"]
VALUES = [
    "NULL",
    "0",
    "1",
    "2",
    "3",
    "-1",
    "1.0",
    "1.5",
    "'1'",
    "'a'",
    "'A'",
    "'b'",
    "''",
    "x'61'",
    "'2'",
    "' 1'",
    "'1e0'",
]
TAME_TYPES = ["INTEGER", "INTEGER", "NUMERIC", "INT", "REAL"]
TAME_VALUES = ["NULL", "0", "1", "2", "1", "2"]
"""Half of the databases hold small numbers only, so that joins find matches and comparisons go both ways."""
JOINS = ["JOIN", "JOIN", "INNER JOIN", "CROSS JOIN", ",", "LEFT JOIN", "LEFT JOIN", "LEFT OUTER JOIN", "RIGHT JOIN"]
JOINS += ["FULL JOIN", "NATURAL JOIN", "NATURAL LEFT JOIN", "NATURAL FULL JOIN"]
ARGUMENTS = [None, 0, 1, 2, 3, 1.0, 1.5, "1", "a", "b", b"a", "", True, "2", -1]


class Database:
    """A random schema: statements that make it, and what queries may name."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.tables: dict[str, list[str]] = {}
        self.writable: dict[str, list[str]] = {}
        self.statements: list[str] = []
        self.views: dict[str, list[str]] = {}
        self.keys: dict[str, str] = {}
        self.tame = random.random() < 0.5
        self.values = TAME_VALUES if self.tame else VALUES
        self.types = TAME_TYPES if self.tame else TYPES
        for number in range(random.choice([2, 2, 3, 3, 4])):
            self._table(f"t{number}")

    def _table(self, name: str) -> None:
        random = self.random
        columns = random.sample(COLUMN_NAMES, random.randint(2, 4))
        types = {column: random.choice(self.types) for column in columns}
        parts = [f"{column} {types[column]}".strip() for column in columns]
        suffix = ""
        shape = random.randrange(6)
        writable = list(columns)
        if shape == 0:
            parts.insert(0, "id INTEGER PRIMARY KEY")
            columns, writable = ["id", *columns], ["id", *writable]
        elif shape == 1:
            parts[0] = f"{columns[0]} INTEGER PRIMARY KEY"
        elif shape == 2:
            parts.append(f"PRIMARY KEY ({columns[0]}, {columns[1]})")
            suffix = " WITHOUT ROWID"
        elif shape == 3:
            parts.append(f"PRIMARY KEY ({columns[0]})")
        if random.random() < 0.1 and "x" not in columns:
            parts.append(f"x AS (coalesce({columns[-1]}, 0) || 'x') STORED")
            columns = [*columns, "x"]
        if random.random() < 0.15:
            parts.append(f"UNIQUE ({random.choice(writable)})")
        parts.sort(key=lambda part: part.startswith(("PRIMARY", "UNIQUE")))
        self.statements.append(f"CREATE TABLE {name} ({', '.join(parts)}){suffix}")
        if random.random() < 0.6:
            chosen = random.sample(columns, random.randint(1, len(columns)))
            condition = f" WHERE {chosen[0]} IS NOT NULL" if random.random() < 0.2 else ""
            self.statements.append(f"CREATE INDEX i_{name} ON {name} ({', '.join(chosen)}){condition}")
        if random.random() < 0.1:
            self.statements.append(f"CREATE INDEX e_{name} ON {name} (coalesce({writable[0]}, {writable[-1]}))")
        self.tables[name] = columns
        self.keys[name] = f"{writable[0]}, {writable[1]}" if suffix else "rowid"
        self.writable[name] = writable

    def add_view(self, name: str, sql: str, columns: list[str]) -> str:
        """Return the statement that makes a view; the caller registers it if SQLite takes it."""
        header = f" ({', '.join(columns)})" if self.random.random() < 0.4 else ""
        return f"CREATE VIEW {name}{header} AS {sql}"

    @property
    def sources(self) -> dict[str, list[str]]:
        return {**self.tables, **self.views}


class Queries:
    """Random queries over a database. Not all of them are valid: SQLite decides."""

    def __init__(self, database: Database, *, arguments: bool = True) -> None:
        self.random = database.random
        self.database = database
        self.with_arguments = arguments
        self.arguments: list[object] = []
        self.alias = 0

    def query(self) -> tuple[str, list[object], bool]:
        """Return a query, its arguments, and whether it orders its result."""
        self.arguments = []
        self.alias = 0
        random = self.random
        choice = random.random()
        if choice < 0.2:
            sql, columns = self._outer_joins()
        elif choice < 0.4:
            sql, columns = self._over_derived()
        else:
            sql, columns = self._query(random.choice([0, 1, 1, 2]), [], {})
        ordered = random.random() < 0.3
        if ordered:
            sql += f" ORDER BY {random.randint(1, len(columns))}" + random.choice(["", " DESC"])
        if random.random() < 0.2:
            sql += f" LIMIT {random.randint(0, 4)}" + random.choice(["", " OFFSET 1"])
        return sql, list(self.arguments), ordered

    def view(self) -> tuple[str, list[str]]:
        """Return a query for a view, and names for its columns."""
        sql, columns = self._query(1, [], {})
        names = [
            f"{random_name}{number}" for number, random_name in enumerate(self.random.choices("abv", k=len(columns)))
        ]
        return sql, names

    def _outer_joins(self) -> tuple[str, list[str]]:
        """Return outer joins of base tables with conditions that NULLs may satisfy: where displaced rows show."""
        random = self.random
        scope = [(f"s{number}", self.database.tables[random.choice(list(self.database.tables))]) for number in range(3)]
        tables = [next(name for name, columns in self.database.tables.items() if columns is item[1]) for item in scope]
        kinds = random.choices(["LEFT JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "JOIN"], k=2)
        first, second = self._equality(scope[0], scope[1]), self._equality(random.choice(scope[:2]), scope[2])
        if random.random() < 0.3:
            second = f"{second} AND {self._nullish(scope)}"
        if random.random() < 0.3:
            inner = f"({tables[1]} s1 {kinds[1]} {tables[2]} s2 ON {self._equality(scope[1], scope[2])})"
            text = f"{tables[0]} s0 {kinds[0]} {inner} ON {first}"
        elif random.random() < 0.4:
            text = f"{tables[0]} s0 {kinds[0]} {tables[1]} s1 ON {first}"
            scope = scope[:2]
        else:
            text = f"{tables[0]} s0 {kinds[0]} {tables[1]} s1 ON {first} {kinds[1]} {tables[2]} s2 ON {second}"
        where = random.choice([" AND ", " AND ", " OR "]).join(
            self._nullish(scope) for _ in range(random.randint(1, 3))
        )
        shown = self._column(scope, qualified=True) if random.random() < 0.7 else "count(*)"
        return f"SELECT {shown} AS p0 FROM {text} WHERE {where}", ["p0"]

    def _equality(self, left: tuple[str, list[str]], right: tuple[str, list[str]]) -> str:
        return f"{left[0]}.{self.random.choice(left[1])} = {right[0]}.{self.random.choice(right[1])}"

    def _nullish(self, scope: list[tuple[str, list[str]]]) -> str:
        random = self.random
        column = self._column(scope, qualified=True)
        value = self._value()
        forms = [f"{column} IS NULL", f"{column} IS NOT NULL", f"{column} = {value}", f"{column} IS {value}"]
        forms += [f"({column} IS NULL OR {column} = {value})", f"{column} IS NOT {value}", f"{column} > {value}"]
        return random.choice([*forms, f"({column} = {value} OR {self._column(scope, qualified=True)} IS NULL)"])

    def _over_derived(self) -> tuple[str, list[str]]:
        """Return a query that takes some columns of a sub-query which does more than to hand rows through."""
        random = self.random
        table = random.choice(list(self.database.tables))
        scope = [(table, self.database.tables[table])]
        first, second, third = (self._column(scope, qualified=True) for _ in range(3))
        where = f" WHERE {self._comparison(scope)}" if random.random() < 0.3 else ""
        shape = random.randrange(5)
        columns = f"{first} AS p, {second} AS q"
        body = [
            f"SELECT DISTINCT {columns} FROM {table}{where}",
            f"SELECT {columns} FROM {table}{where} ORDER BY {third} LIMIT {random.randint(1, 3)}",
            f"SELECT {columns} FROM {table}{where} LIMIT {random.randint(1, 3)}",
            f"SELECT {first} AS p, max({second}) AS q FROM {table}{where}{random.choice([f' GROUP BY {third}', ''])}",
            f"SELECT {first} AS p, {second} AS q FROM {table}{where} UNION SELECT {third}, 1 FROM {table}",
        ][shape]
        shown = random.choice(["p", "q", "count(*)", "p, q", "1"])
        outer = (
            f" WHERE {random.choice('pq')} {random.choice(['=', 'IS', '<', '<>'])} {self._value()}"
            if random.random() < 0.5
            else ""
        )
        return f"SELECT {shown} FROM ({body}) AS d{outer}", shown.split(", ")

    def _query(
        self, depth: int, outer: list[tuple[str, list[str]]], common: dict[str, list[str]]
    ) -> tuple[str, list[str]]:
        random = self.random
        if depth > 0 and random.random() < 0.25:
            return self._with(depth, outer, common)
        sql, columns = self._select(depth, outer, common)
        if random.random() < 0.15:
            operator = random.choice(["UNION", "UNION ALL", "UNION ALL", "INTERSECT", "EXCEPT"])
            other, _ = self._select(depth - 1, outer, common, width=len(columns))
            sql = f"{sql} {operator} {other}"
            if random.random() < 0.2:
                third, _ = self._select(0, outer, common, width=len(columns))
                sql = f"{sql} {random.choice(['UNION ALL', 'EXCEPT', 'UNION', 'INTERSECT'])} {third}"
        return sql, columns

    def _with(
        self, depth: int, outer: list[tuple[str, list[str]]], common: dict[str, list[str]]
    ) -> tuple[str, list[str]]:
        random = self.random
        common = dict(common)
        definitions = []
        for _ in range(random.randint(1, 2)):
            name = random.choice([*self.database.sources, "q", "r", "Q1"])
            if random.random() < 0.2:
                text, columns = self._recursive(name, common)
            else:
                body, columns = self._query(depth - 1, outer, {k: v for k, v in common.items() if k != name})
                columns = list(dict.fromkeys(columns)) if len(set(columns)) == len(columns) else columns
                header = ""
                if random.random() < 0.4 or len(set(columns)) != len(columns):
                    columns = [f"k{number}" for number in range(len(columns))]
                    header = f"({', '.join(columns)})"
                text = f"{name}{header} AS {random.choice(['', '', 'MATERIALIZED '])}({body})"
            definitions.append(text)
            common[name] = columns
        sql, columns = self._select(depth, outer, common)
        return f"WITH {random.choice(['', 'RECURSIVE '])}{', '.join(definitions)} {sql}", columns

    def _recursive(self, name: str, common: dict[str, list[str]]) -> tuple[str, list[str]]:
        random = self.random
        table = random.choice([table for table in self.database.tables if table != name] or ["t0"])
        columns = self.database.tables[table]
        start, step = random.choice(columns), random.choice(columns)
        condition = self._condition([(table, columns)], 0, {})
        union = random.choice(["UNION", "UNION ALL"])
        return (
            f"{name}(n, m) AS (SELECT {start}, 0 FROM {table} WHERE {condition} {union} "
            f"SELECT {table}.{step}, m + 1 FROM {name} JOIN {table} ON {table}.{start} = n WHERE m < 3)",
            ["n", "m"],
        )

    def _from(
        self, depth: int, outer: list[tuple[str, list[str]]], common: dict[str, list[str]]
    ) -> tuple[str, list[tuple[str, list[str]]]]:
        random = self.random
        scope: list[tuple[str, list[str]]] = []
        text = self._item(depth, outer, common, scope)
        for _ in range(random.choice([0, 0, 0, 1, 1, 2])):
            kind = random.choice(JOINS)
            before = len(scope)
            item = self._item(depth, outer, common, scope)
            if random.random() < 0.1 and kind.startswith(("LEFT", "JOIN", "RIGHT")):
                inner = self._item(0, outer, common, scope)
                condition = self._condition(scope[before:], 0, common)
                item = f"({item} {random.choice(['JOIN', 'LEFT JOIN'])} {inner} ON {condition})"
            text += f" {kind} {item}" if kind != "," else f", {item}"
            if "NATURAL" in kind or kind == ",":
                continue
            shared = [name for name in scope[before][1] if any(name in columns for _, columns in scope[:before])]
            if shared and random.random() < 0.25 and len(scope) == before + 1:
                text += f" USING ({random.choice(shared)})"
            elif kind != "CROSS JOIN" or random.random() < 0.2:
                text += f" ON {self._join_condition(scope, before, common)}"
        return text, scope

    def _join_condition(self, scope: list[tuple[str, list[str]]], before: int, common: dict[str, list[str]]) -> str:
        random = self.random
        left, right = random.choice(scope[:before]), scope[before]
        equality = f"{left[0]}.{random.choice(left[1])} = {right[0]}.{random.choice(right[1])}"
        if random.random() < 0.4:
            return f"{equality} AND {self._condition(scope, 0, common)}"
        return equality if random.random() < 0.7 else self._condition(scope, 1, common)

    def _item(
        self,
        depth: int,
        outer: list[tuple[str, list[str]]],
        common: dict[str, list[str]],
        scope: list[tuple[str, list[str]]],
    ) -> str:
        random = self.random
        self.alias += 1
        alias = f"s{self.alias}"
        if depth > 0 and random.random() < 0.25:
            sql, columns = self._query(depth - 1, outer, common)
            scope.append((alias, columns))
            return f"({sql}) AS {alias}"
        known = {**self.database.sources, **common}
        name = random.choice(list(known))
        columns = known[name]
        if name in common or random.random() < 0.9:
            shown = name.upper() if random.random() < 0.1 else f'"{name}"' if random.random() < 0.1 else name
        else:
            shown = f"main.{name}"
            columns = self.database.sources[name]
        if any(alias_ == name for alias_, _ in scope) or random.random() < 0.6:
            scope.append((alias, columns))
            return f"{shown} {random.choice(['AS ', ''])}{alias}"
        scope.append((name, columns))
        return shown

    def _select(
        self,
        depth: int,
        outer: list[tuple[str, list[str]]],
        common: dict[str, list[str]],
        *,
        width: int | None = None,
    ) -> tuple[str, list[str]]:
        random = self.random
        text, scope = self._from(depth, outer, common)
        where = f" WHERE {self._condition(scope, depth, common, outer)}" if random.random() < 0.7 else ""
        if width is None and random.random() < 0.25:
            star = random.choice(["*", f"{scope[0][0]}.*"])
            columns = [name for _, names in (scope if star == "*" else scope[:1]) for name in names]
            return f"SELECT {star} FROM {text}{where}", columns
        count = width or random.randint(1, 3)
        if random.random() < 0.25:
            return self._grouped(count, text, where, scope)
        items, names = [], []
        for number in range(count):
            item, name = self._projection(scope, depth, common)
            alias = random.random() < 0.4 or name == ""
            items.append(f"{item} AS p{number}" if alias else item)
            names.append(f"p{number}" if alias else name)
        distinct = "DISTINCT " if random.random() < 0.12 else ""
        sql = f"SELECT {distinct}{', '.join(items)} FROM {text}{where}"
        if width is None and random.random() < 0.15:
            order = random.choice(["", f" ORDER BY {random.randint(1, count)}", f" ORDER BY {self._column(scope)}"])
            chosen = random.choice(["*", names[0], "count(*)"])
            return f"SELECT {chosen} FROM ({sql}{order} LIMIT {random.randint(1, 3)})", names if chosen == "*" else [
                chosen
            ]
        return sql, names

    def _grouped(self, count: int, text: str, where: str, scope: list[tuple[str, list[str]]]) -> tuple[str, list[str]]:
        random = self.random
        key = self._column(scope)
        aggregates = [
            "count(*)",
            f"count({self._column(scope)})",
            f"sum({self._column(scope)})",
            f"max({self._column(scope)})",
        ]
        aggregates += [
            f"min({self._column(scope)})",
            f"group_concat({self._column(scope)})",
            f"avg({self._column(scope)})",
        ]
        aggregates += [f"count(DISTINCT {self._column(scope)})", self._column(scope), f"total({self._column(scope)})"]
        grouped = random.random() < 0.7
        items = [random.choice([key, *aggregates] if grouped else aggregates[:8]) for _ in range(count)]
        if random.random() < 0.08:
            items[0] = f"row_number() OVER (PARTITION BY {key} ORDER BY {self._column(scope)})"
            grouped = False
        sql = (
            "SELECT " + ", ".join(f"{item} AS p{number}" for number, item in enumerate(items)) + f" FROM {text}{where}"
        )
        if grouped:
            sql += f" GROUP BY {key}"
            if random.random() < 0.3:
                sql += (
                    f" HAVING {random.choice(aggregates[:8])} {random.choice(['>', '=', '<'])} {random.randint(0, 3)}"
                )
        return sql, [f"p{number}" for number in range(count)]

    def _projection(
        self, scope: list[tuple[str, list[str]]], depth: int, common: dict[str, list[str]]
    ) -> tuple[str, str]:
        random = self.random
        choice = random.random()
        if choice < 0.6:
            column = self._column(scope)
            return column, column.rpartition(".")[2]
        if choice < 0.7:
            return (
                f"CASE WHEN {self._condition(scope, 0, common)} THEN {self._column(scope)} ELSE {self._value()} END",
                "",
            )
        if choice < 0.8:
            function = random.choice(["typeof", "ifnull", "lower", "quote", "coalesce", "length", "iif"])
            extra = {"ifnull": ", 7", "coalesce": f", {self._column(scope)}", "iif": ", 1, 2"}.get(function, "")
            return f"{function}({self._column(scope)}{extra})", ""
        if choice < 0.87:
            return f"{self._column(scope)} || {self._value()}", ""
        if choice < 0.93 and depth > 0:
            sql, _ = self._select(0, scope, common, width=1)
            return f"({sql})", ""
        return random.choice([self._value(), "1", f"+{self._column(scope)}", f"{self._column(scope)} IS NULL"]), ""

    def _condition(
        self,
        scope: list[tuple[str, list[str]]],
        depth: int,
        common: dict[str, list[str]],
        outer: list[tuple[str, list[str]]] | None = None,
    ) -> str:
        random = self.random
        choice = random.random()
        if choice < 0.18:
            joiner = random.choice([" AND ", " AND ", " OR "])
            return joiner.join(self._condition(scope, depth - 1, common, outer) for _ in range(2))
        if choice < 0.24:
            return f"NOT {self._condition(scope, depth - 1, common, outer)}"
        if choice < 0.30:
            left, right = (self._condition(scope, depth - 1, common, outer) for _ in range(2))
            return f"({left} OR {right})"
        if choice < 0.36 and depth > 0:
            inner, _ = self._select(depth - 1, scope, common, width=1)
            inner = self._correlated(inner, scope)
            return (
                f"{random.choice(['', 'NOT '])}EXISTS (SELECT * FROM ({inner}) WHERE 1)"
                if random.random() < 0.3
                else (f"{random.choice(['', 'NOT '])}EXISTS ({inner})")
            )
        if choice < 0.42 and depth > 0:
            inner, _ = self._select(depth - 1, scope, common, width=1)
            return f"{self._column(scope)} {random.choice(['', 'NOT '])}IN ({inner})"
        return self._comparison([*scope, *(outer or [])] if random.random() < 0.2 else scope)

    def _correlated(self, inner: str, scope: list[tuple[str, list[str]]]) -> str:
        if self.random.random() < 0.5 or " WHERE " in inner or " GROUP " in inner or " ORDER " in inner:
            return inner
        return f"{inner} WHERE {self._column(scope, qualified=True)} = {self.random.choice(COLUMN_NAMES)}"

    def _comparison(self, scope: list[tuple[str, list[str]]]) -> str:
        random = self.random
        column = self._column(scope)
        choice = random.random()
        sign = random.choice(["=", "=", "=", "<>", "<", "<=", ">", ">=", "==", "!="])
        if choice < 0.42:
            sides = [column, self._value()]
            if random.random() < 0.15:
                sides.reverse()
            return f" {sign} ".join(sides)
        if choice < 0.48:
            return f"{column} {sign} {self._column(scope)}"
        if choice < 0.56:
            members = ", ".join(self._value() for _ in range(random.randint(0, 3)))
            return f"{column} {random.choice(['', 'NOT '])}IN ({members})"
        if choice < 0.62:
            return f"{column} {random.choice(['', 'NOT '])}BETWEEN {self._value()} AND {self._value()}"
        if choice < 0.74:
            forms = ["IS NULL", "IS NULL", "IS NOT NULL", "ISNULL", "NOTNULL", "IS TRUE", "IS NOT FALSE"]
            return f"{column} {random.choice(forms)}"
        if choice < 0.84:
            operator = random.choice(["IS", "IS NOT", "IS DISTINCT FROM", "IS NOT DISTINCT FROM"])
            return f"{column} {operator} {self._value()}"
        odd = [
            f"{column} LIKE 'a%'",
            f"+{column} {sign} {self._value()}",
            f"{column} + 1 {sign} {self._value()}",
            column,
        ]
        odd += [
            f"{column} COLLATE NOCASE {sign} {self._value()}",
            f"{column} = {self._value()} IS NULL",
            f"{column} = 1 = 1",
        ]
        odd += [
            f"CAST({column} AS TEXT) {sign} {self._value()}",
            f"-{column} {sign} {self._value()}",
            f"{column} IS (TRUE)",
        ]
        odd += [
            f"({column}, 1) = ({self._value()}, 1)",
            f"typeof({column}) = 'text'",
            f"{column} {sign} 1 COLLATE NOCASE",
            "1",
        ]
        odd += [f"{column} = TRUE", f"NOT {column} = 1 IS NULL", f"{column} = 1 < 2", f"1 < {column} = 1", "0", "NULL"]
        odd += [f"{column} BETWEEN 0 AND 2 = 1", f"({column}) {sign} ({self._value()})", f"{column} IS NOT NULL = 1"]
        odd += [
            f"{column} || '' = 'a'",
            f"{column} = 1 OR 0",
            f"1 = {column} AND 1",
            f"~{column} = -2",
            f"{column} & 1 = 1",
        ]
        return random.choice(odd)

    def _column(self, scope: list[tuple[str, list[str]]], *, qualified: bool = False) -> str:
        source, columns = self.random.choice(scope)
        column = self.random.choice(columns)
        if self.random.random() < 0.03:
            column = "rowid"
        if columns.count(column) > 1 and self.random.random() < 0.3:
            return f'{source}."{column}:1"'
        if not qualified and self.random.random() < 0.25:
            return column
        return f"{source}.{column}"

    def _value(self) -> str:
        if self.with_arguments and self.random.random() < 0.2:
            self.arguments.append(self.random.choice(ARGUMENTS[:4] if self.database.tame else ARGUMENTS))
            return "?"
        return self.random.choice(self.database.values)


def fill(database: Database) -> list[str]:
    """Return statements that put some rows into every table."""
    return [_insert(database, table, 1) for table in database.tables for _ in range(7)]


def writes(database: Database) -> list[str]:
    """Return the statements of one random transaction: mostly one that changes one row: nothing hides a mistake."""
    random = database.random
    if random.random() < 0.9:
        return [_write(database, one=True)]
    return [_write(database, one=random.random() < 0.3) for _ in range(random.randint(1, 3))]


def _write(database: Database, *, one: bool) -> str:
    random = database.random
    table = random.choice(list(database.tables))
    columns = database.writable[table]
    choice = random.random()
    values = database.values
    where = (
        _one_row(database, table) if one else f"{random.choice(columns)} {random.choice('=<>')} {random.choice(values)}"
    )
    if choice < 0.35:
        return _insert(database, table, 1 if one else random.randint(1, 3))
    if choice < 0.8:
        changed = random.choice(columns)
        value = random.choice([*values, random.choice(columns)])
        if random.random() < 0.04:
            changed, value = "rowid", str(random.randint(1, 12))
        return f"UPDATE OR IGNORE {table} SET {changed} = {value} WHERE {where}"
    if one or choice < 0.97:
        return f"DELETE FROM {table} WHERE {where}"
    return f"DELETE FROM {table}"


def _insert(database: Database, table: str, rows: int) -> str:
    random = database.random
    columns = database.writable[table]
    values = ", ".join(f"({', '.join(random.choice(database.values) for _ in columns)})" for _ in range(rows))
    verb = random.choice(["INSERT OR IGNORE", "INSERT OR IGNORE", "INSERT OR REPLACE"])
    return f"{verb} INTO {table} ({', '.join(columns)}) VALUES {values}"


def _one_row(database: Database, table: str) -> str:
    key = database.keys[table]
    return f"({key}) = (SELECT {key} FROM {table} LIMIT 1 OFFSET {database.random.randint(0, 4)})"
