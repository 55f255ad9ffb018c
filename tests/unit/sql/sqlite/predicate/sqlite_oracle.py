"""SQLite itself as the oracle of SQL predicates: random expressions and rows, and what SQLite says of them."""

import random
from collections.abc import Callable

import apsw

from tailrace.model.image import encode_image
from tailrace.model.table import Column, Kind, TableName, TableSchema

DDL = (
    "CREATE TABLE t (i INTEGER, r REAL, s TEXT, b BLOB, n NUMERIC(10, 2), x, c VARCHAR(20) COLLATE NOCASE,"
    ' e TEXT COLLATE RTRIM, "odd ""name" INT, a ANY)'
)
SCHEMA = TableSchema(
    TableName("app", "t"),
    1,
    (
        Column("i", Kind.I64, "INTEGER"),
        Column("r", Kind.F64, "REAL"),
        Column("s", Kind.STR, "TEXT"),
        Column("b", Kind.BYTES, "BLOB"),
        Column("n", Kind.DEC, "NUMERIC(10, 2)"),
        Column("x", Kind.ANY, ""),
        Column("c", Kind.STR, "VARCHAR(20)"),
        Column("e", Kind.STR, "TEXT"),
        Column('odd "name', Kind.I64, "INT"),
        Column("a", Kind.ANY, "ANY"),
    ),
    ddl=DDL,
)

INTEGERS = [0, 1, -1, 2, 3, 5, 10, 12, 100, -7, 63, 64, 2**31, 2**53, 2**53 + 1, 2**63 - 1, -(2**63), -(2**63) + 1]
REALS = [0.0, -0.0, 0.5, 1.0, -1.5, 2.5, 3.0, 1e-7, 1e15, 2.0**53, 9.3e18, -9.3e18, 2.0**63, 1e300, 5e-324]
REALS += [float("inf"), float("-inf")]
TEXTS = [
    "",
    "a",
    "A",
    "b",
    "abc",
    "ABC",
    "aBc ",
    "ab  ",
    " ab",
    "1",
    "1.0",
    " 12 ",
    "12abc",
    "0x10",
    "1e2",
    "1e2x",
    ".5",
]
TEXTS += [
    "5.",
    ".",
    "1e",
    "-5",
    "+3",
    "- 3",
    "\n7\t",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
]
TEXTS += [
    "é",
    "É",
    "straße",
    "💡x",
    "a%b",
    "a_b",
    "a\\b",
    "a\0b",
    "\0",
    "5\0",
    "inf",
    "nan",
    "NULL",
    "[a]",
    "a-c",
    "]",
    "^",
]
TEXTS += ["1e400", "-1e-400", "000123", "1.5.2", "e5", "x'61'", "it's", "true"]
BLOBS = [b"", b"a", b"abc", b"12", b"1.5x", b"\xff", b"a\0b", "é".encode()]
PATTERNS = [
    "%",
    "a%",
    "%b",
    "%B%",
    "_",
    "a_c",
    "A%C",
    "__",
    "%\\%%",
    "a\\_b",
    "",
    "%a%b%",
    "É",
    "é%",
    "1%",
    "%2",
    "-%",
    "_%_",
]
GLOBS = [
    "*",
    "a*",
    "*b",
    "?",
    "a?c",
    "[a-c]*",
    "[^a]*",
    "[]]",
    "[a",
    "[^]]",
    "*[0-9]",
    "A*",
    "[a-]",
    "[c-a]",
    "[[]a]",
    "é",
    "[-a]*",
]


def rows(source: random.Random, number: int) -> list[tuple]:
    """Draw rows with every storage class in every column."""
    pools = [INTEGERS, REALS, TEXTS, BLOBS]
    own = [0, 1, 2, 3, 0, None, 2, 2, 0, None]

    def cell(column: int) -> object:
        if source.random() < 0.15:
            return None
        pool = own[column]
        if pool is None or source.random() < 0.25:
            pool = source.randrange(4)
        return source.choice(pools[pool])

    return [tuple(cell(column) for column in range(10)) for _ in range(number)]


class Oracle:
    """A table in SQLite with some rows, and their images."""

    def __init__(self, drawn: list[tuple]) -> None:
        self._database = apsw.Connection(":memory:")
        self._database.execute(DDL)
        self._database.executemany("INSERT INTO t VALUES (?,?,?,?,?,?,?,?,?,?)", drawn)
        names = [column.name for column in SCHEMA.columns]
        self.rows = list(self._database.execute("SELECT * FROM t ORDER BY rowid"))
        self.images = [encode_image(dict(zip(names, row, strict=True)), SCHEMA) for row in self.rows]

    def ask(self, where: str) -> list[bool] | None:
        """Return for which rows SQLite finds the condition true; None if it fails."""
        try:
            found = {number for (number,) in self._database.execute(f"SELECT rowid FROM t WHERE {where}")}
        except apsw.SQLError as error:
            if "overflow" in str(error) or "ESCAPE" in str(error):
                return None
            raise
        return [number + 1 in found for number in range(len(self.rows))]

    def ask_pairs(self, where: str) -> dict[tuple[int, int], bool]:
        """Return for which pairs of rows, as before and after, SQLite finds the condition true; empty if it fails."""
        query = f"SELECT before.rowid, after.rowid FROM t AS before, t AS after WHERE {where}"
        try:
            found = {(one - 1, other - 1) for one, other in self._database.execute(query)}
        except apsw.SQLError:
            return {}
        places = range(len(self.rows))
        return {(one, other): (one, other) in found for one in places for other in places}


class Writer:
    """Writes random SQL conditions over the table, with and without brackets."""

    def __init__(self, source: random.Random) -> None:
        self._random = source

    def condition(self, depth: int) -> str:
        """Write a condition."""
        pick = self._random.random()
        if depth <= 0:
            return self._comparison(0)
        if pick < 0.2:
            return self._join([" AND ", " OR "], lambda: self.condition(depth - 1), 2 + (self._random.random() < 0.2))
        if pick < 0.28:
            return f"NOT {self._wrapped(self.condition(depth - 1))}"
        if pick < 0.34:
            truth = self._random.choice(["TRUE", "FALSE", "NOT TRUE", "NOT FALSE"])
            return f"{self._wrapped(self.value(depth - 1))} IS {truth}"
        if pick < 0.38:
            return self.number(depth - 1)
        return self._comparison(depth - 1)

    def value(self, depth: int) -> str:
        """Write a value of any kind."""
        return self._random.choice([self.number, self.text, self.number, self.text, self._blob, self._any])(depth)

    def number(self, depth: int) -> str:
        """Write something that is mostly a number."""
        pick = self._random.random()
        if depth <= 0 or pick < 0.35:
            return self._leaf()
        if pick < 0.6:
            return self._join([" + ", " - ", " * ", " / ", " % ", "+", "*"], lambda: self.number(depth - 1), 2)
        if pick < 0.67:
            return self._join([" & ", " | ", " << ", " >> "], lambda: self.number(depth - 1), 2)
        if pick < 0.74:
            return f"{self._random.choice(['-', '+', '~', '- '])}{self._wrapped(self.number(depth - 1))}"
        if pick < 0.8:
            type_name = self._random.choice(["INTEGER", "REAL", "NUMERIC", "DECIMAL(4,2)", "int"])
            return f"CAST({self.value(depth - 1)} AS {type_name})"
        if pick < 0.9:
            return self._random.choice(
                [
                    lambda: f"abs({self.number(depth - 1)})",
                    lambda: f"length({self.text(depth - 1)})",
                    lambda: f"instr({self.text(depth - 1)}, {self.text(0)})",
                    lambda: f"round({self.number(depth - 1)})",
                    lambda: f"sign({self.value(depth - 1)})",
                    lambda: f"length({self._blob(0)})",
                ]
            )()
        if pick < 0.95:
            return f"({self.condition(depth - 1)})"
        return self._any(depth - 1)

    def text(self, depth: int) -> str:
        """Write something that is mostly text."""
        pick = self._random.random()
        if depth <= 0 or pick < 0.45:
            return self._random.choice(
                ["s", "c", "e", "x", "S", quote(self._random.choice(TEXTS)), quote(self._random.choice(TEXTS))]
            )
        inner = depth - 1
        return self._random.choice(
            [
                lambda: f"lower({self.text(inner)})",
                lambda: f"upper({self.text(inner)})",
                lambda: f"trim({self.text(inner)})",
                lambda: f"ltrim({self.text(inner)}, {quote(self._random.choice(['a', 'ab', ' ', '', 'é1']))})",
                lambda: f"rtrim({self.text(inner)}, {self.text(0)})",
                lambda: f"substr({self.text(inner)}, {self.number(0)})",
                lambda: f"substr({self.text(inner)}, {self._small()}, {self._small()})",
                lambda: f"typeof({self.value(inner)})",
                lambda: f"CAST({self._random.choice([self.text, self._blob])(inner)} AS TEXT)",
                lambda: f"CAST({self._integer()} AS VARCHAR)",
                lambda: self._join([" || ", "||"], lambda: self.text(inner), 2),
                lambda: f"{self._integer()} || {self.text(inner)}",
                lambda: self._any(inner),
            ]
        )()

    def _blob(self, depth: int) -> str:
        if depth > 0 and self._random.random() < 0.3:
            return self._random.choice(
                [
                    lambda: f"substr({self._blob(depth - 1)}, {self._small()}, {self._small()})",
                    lambda: f"CAST({self.text(depth - 1)} AS BLOB)",
                ]
            )()
        return self._random.choice(["b", "x", "a", f"x'{self._random.choice(BLOBS).hex()}'"])

    def _any(self, depth: int) -> str:
        if depth <= 0:
            return self._random.choice(["x", "a", "n", "NULL"])
        inner = depth - 1
        return self._random.choice(
            [
                lambda: f"coalesce({self.value(inner)}, {self.value(inner)})",
                lambda: f"ifnull({self.value(inner)}, {self.value(inner)})",
                lambda: f"nullif({self.value(inner)}, {self.value(inner)})",
                lambda: f"iif({self.condition(inner)}, {self.value(inner)}, {self.value(inner)})",
                lambda: f"max({self.value(inner)}, {self.value(inner)})",
                lambda: f"min({self.value(inner)}, {self.value(inner)}, {self.value(inner)})",
                lambda: f"CASE WHEN {self.condition(inner)} THEN {self.value(inner)} ELSE {self.value(inner)} END",
                lambda: f"CASE {self.value(inner)} WHEN {self.value(0)} THEN {self.value(inner)} WHEN 1 THEN 1 END",
            ]
        )()

    def _comparison(self, depth: int) -> str:
        pair = self._random.choice([self.number, self.text, self.value])
        one, other = self._wrapped(pair(depth)), self._wrapped(pair(depth))
        if self._random.random() < 0.2:
            one, other = self._wrapped(self.number(depth)), self._wrapped(self.text(depth))
        if self._random.random() < 0.1:
            one = f"{one} COLLATE {self._random.choice(['NOCASE', 'RTRIM', 'BINARY'])}"
        negation = self._random.choice(["", "", "NOT "])
        pick = self._random.random()
        if pick < 0.5:
            operator = self._random.choice(["=", "==", "<>", "!=", "<", "<=", ">", ">=", "IS", "IS NOT"])
            return f"{one} {operator} {other}"
        if pick < 0.55:
            return f"{one} IS {negation}DISTINCT FROM {other}"
        if pick < 0.63:
            return f"{one} {self._random.choice(['IS NULL', 'IS NOT NULL', 'ISNULL', 'NOTNULL', 'NOT NULL'])}"
        if pick < 0.73:
            return f"{one} {negation}BETWEEN {other} AND {self._wrapped(pair(depth))}"
        if pick < 0.83:
            options = [pair(self._random.choice([0, 0, depth])) for _ in range(self._random.randrange(1, 5))]
            return f"{one} {negation}IN ({', '.join(options)})"
        subject = self._wrapped(self.text(depth))
        if pick < 0.93:
            pattern = self.text(0) if self._random.random() < 0.2 else quote(self._random.choice(PATTERNS))
            escape = self._random.choice(["", "", " ESCAPE '\\'", " ESCAPE 'a'", " ESCAPE '%'"])
            return f"{subject} {negation}LIKE {pattern}{escape}"
        pattern = self.text(0) if self._random.random() < 0.2 else quote(self._random.choice(GLOBS))
        return f"{subject} {negation}GLOB {pattern}"

    def _leaf(self) -> str:
        if self._random.random() < 0.6:
            return self._random.choice(["i", "r", "n", '"odd ""name"', "I", "t.i", "[r]", "`n`", "a", "x"])
        if self._random.random() < 0.6:
            return self._random.choice([str(number) for number in INTEGERS] + ["0x1F", "TRUE", "false"])
        return self._random.choice(
            ["0.5", "1.0", ".25", "2.", "1e3", "-1.5", "1.5E-3", "9.3e18", "9e999", "9223372036854775808"]
        )

    def _integer(self) -> str:
        return self._random.choice(["i", "5", "-3", '"odd ""name"', "length(s)"])

    def _small(self) -> str:
        return str(self._random.choice([-9, -3, -2, -1, 0, 1, 2, 3, 9]))

    def _join(self, operators: list[str], part: Callable[[], str], number: int) -> str:
        text = self._wrapped(part())
        for _ in range(number - 1):
            text += self._random.choice(operators) + self._wrapped(part())
        return text

    def _wrapped(self, text: str) -> str:
        """Put brackets around a part, or leave it to precedence."""
        return f"({text})" if self._random.random() < 0.6 else text


def quote(text: str) -> str:
    """Write a text literal; one with a NUL character cannot be written and loses it."""
    return "'" + text.replace("\0", "").replace("'", "''") + "'"
