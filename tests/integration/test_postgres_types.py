"""PostgreSQL is the oracle: a value that was written by SQL equals its image when the server reads that as its type."""

import random

import pytest

import postgres_servers
from postgres_capture import captured
from postgres_reading import reading
from tailrace.model.table import Kind
from tailrace.model.value import Array, Text

ROUNDS = 6
EXTENSIONS = ("hstore", "citext", "ltree")
PREPARE = """
CREATE TYPE mood AS ENUM ('sad', 'so so', 'it''s "fine"');
CREATE DOMAIN positive AS int CHECK (VALUE > 0);
CREATE DOMAIN tags AS text[];
CREATE DOMAIN small_positive AS positive CHECK (VALUE < 1000000);
CREATE TYPE pair AS (number int, label text);
CREATE TYPE floatrange AS RANGE (subtype = float8);
CREATE SCHEMA other;
CREATE TYPE other.kind AS ENUM ('a', 'b');
"""

FIXED = {
    "smallint": ["-32768", "32767", "0"],
    "integer": ["-2147483648", "2147483647"],
    "bigint": ["-9223372036854775808", "9223372036854775807"],
    "oid": ["4294967295", "0"],
    "boolean": ["true", "false"],
    "real": ["1", "-0", "0.1", "1e-38", "3.4e38", "NaN", "Infinity", "-Infinity", "123456.789"],
    "double precision": ["1", "-0", "0.1", "1e300", "5e-324", "NaN", "Infinity", "-Infinity", "9007199254740993"],
    "numeric": ["1.10", "NaN", "Infinity", "-Infinity", "0.00000000000000000001", "-1e100", "12345678901234567890.5"],
    "numeric(10,2)": ["1.10", "NaN", "-12345678.99"],
    "text": ["", "a", "ü€𝄞", 'quote " back\\slash', "line\nbreak\ttab", "NULL", "{}", "\u2028\x7f\x01"],
    "varchar(20)": ["abc", ""],
    "char(5)": ["ab", "     "],
    "name": ["a_name"],
    '"char"': ["x"],
    "bytea": ["\\x", "\\x00ff10", "\\xdeadbeef"],
    "date": ["2026-01-31", "infinity", "-infinity", "0044-03-15 BC", "5874897-12-31"],
    "time": ["00:00:00", "24:00:00", "23:59:59.999999"],
    "timetz": ["24:00:00+02", "12:00:00-15:59", "04:05:06.789+05:30"],
    "timestamp": ["2026-01-31 12:00:00", "infinity", "-infinity", "0044-03-15 01:02:03 BC", "294276-12-31 23:59:59"],
    "timestamptz": ["2026-01-31 12:00:00+02", "infinity", "-infinity", "0044-03-15 01:02:03+00 BC"],
    "interval": ["1 year 2 mons -3 days 04:05:06.789", "-1 day", "178000000 years", "00:00:00.000001", "0"],
    "uuid": ["00000000-0000-0000-0000-000000000000", "7f3c9a52-1b1e-4d6a-9c7f-0a1b2c3d4e5f"],
    "json": ['{"a": [1, 2.50, null], "a": 1}', "1e400", '"\\u00fc"', " [ ] "],
    "jsonb": ['{"a": [1, 2.50, null], "b": {"c": "d"}}', "1e100", "null"],
    "int[]": ["{}", "{1,NULL,3}", "{{1,2},{3,4}}", "[0:1]={5,6}", "[-2:-1][3:4]={{1,2},{3,NULL}}"],
    "text[]": ['{a,"b c",NULL,"NULL","",""}', '{"quote \\" and \\\\ back","{}","a,b"}', '{{"x y",z},{"",NULL}}'],
    "numeric[]": ["{1.10,NaN,-Infinity,NULL}"],
    "float8[]": ["{1,NaN,Infinity,0.1}"],
    "bool[]": ["{t,f,NULL}"],
    "bytea[]": ['{"\\\\x00ff","\\\\x"}'],
    "date[]": ["{infinity,2026-01-01}"],
    "timestamptz[]": ['{"2026-01-31 12:00:00+00",infinity}'],
    "jsonb[]": ['{"{\\"a\\": \\"b,c\\"}",null}'],
    "box[]": ["{(1,1),(0,0);(2,2),(1,1)}"],
    "int4range": ["empty", "[1,10)", "(,5)", "(,)"],
    "numrange": ["[1.5,2.5]", "empty"],
    "tstzrange": ["[2026-01-01 00:00:00+00,infinity)"],
    "daterange": ["[2026-01-01,2026-02-01)"],
    "int4multirange": ["{}", "{[1,3),[5,8)}"],
    "int4range[]": ['{"[1,3)",empty}'],
    "floatrange": ["[0.5,1.5)"],
    "mood": ["sad", 'it\'s "fine"', "so so"],
    "mood[]": ['{sad,"so so","it\'s \\"fine\\""}'],
    "other.kind": ["a"],
    "positive": ["1", "2147483647"],
    "small_positive": ["17"],
    "tags": ['{a,"b c"}'],
    "tags[]": ['{"{a,b}","{}"}'],
    "pair": ['(1,"a ""b"", c")', "(,)", '(5,"")'],
    "pair[]": ['{"(1,a)","(2,\\"b c\\")"}'],
    "inet": ["10.0.0.1", "10.0.0.0/8", "::1/64"],
    "cidr": ["10.0.0.0/8", "2001:db8::/32"],
    "macaddr": ["08:00:2b:01:02:03"],
    "macaddr8": ["08:00:2b:01:02:03:04:05"],
    "bit(4)": ["0101"],
    "bit varying": ["", "10110"],
    "tsvector": ["'a':1A 'b c':2,3", ""],
    "tsquery": ["'a' & ( 'b' | !'c' )"],
    "xml": ['<a b="c">ü</a>', "plain"],
    "money": ["$1,234.56", "-$0.01"],
    "pg_lsn": ["16/B374D848"],
    "point": ["(1.5,-2)"],
    "polygon": ["((0,0),(1,1),(1,0))"],
    "int2vector": ["1 2 3"],
    "txid_snapshot": ["10:20:10,14,15"],
    "hstore": ['"a"=>"1", "b"=>NULL', '"x y"=>"q\\"z"'],
    "citext": ["MixedCase"],
    "ltree": ["Top.Science.Astronomy"],
    "hstore[]": ['{"\\"a\\"=>\\"1\\"",NULL}'],
}
"""Values of each type, as text that the server reads."""


def randomly(chance):
    """Return random values of the types whose edges are in their digits and letters."""

    def text():
        return "".join(chance.choice("aü\"'\\{},;NUL \n\t()[]€") for _ in range(chance.randrange(12)))

    def quoted(value):
        return "NULL" if chance.random() < 0.2 else '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'

    return {
        "bigint": [str(chance.randrange(-(2**63), 2**63))],
        "double precision": [repr(chance.uniform(-1, 1) * 10 ** chance.randrange(-300, 300))],
        "numeric": [f"{chance.randrange(-(10**30), 10**30)}.{chance.randrange(10**12):012}"],
        "text": [text()],
        "bytea": ["\\x" + chance.randbytes(chance.randrange(20)).hex()],
        "date": [f"{chance.randrange(1, 9999):04}-{chance.randrange(1, 13):02}-{chance.randrange(1, 29):02}"],
        "interval": [f"{chance.randrange(-99, 99)} mons {chance.randrange(-99, 99)} days {chance.randrange(10**9)} us"],
        "int[]": ["{" + ",".join(str(chance.randrange(-99, 99)) for _ in range(chance.randrange(1, 6))) + "}"],
        "text[]": ["{" + ",".join(quoted(text()) for _ in range(chance.randrange(1, 6))) + "}"],
        "int4range": [f"[{chance.randrange(0, 50)},{chance.randrange(50, 100)})"],
    }


def as_text(value):
    """Return the text by which the server reads a value of ours."""
    match value:
        case None:
            return None
        case bool():
            return "true" if value else "false"
        case float() | int():
            return repr(value)
        case bytes():
            return "\\x" + value.hex()
        case Text(_, text):
            return text
        case Array(items, lower):
            return _bounds(items, lower) + _items(items)
        case _:
            return str(value)


DELIMITERS = {"box[]": ";"}


def _bounds(items, lower):
    sizes, level = [], items
    for _ in lower:
        sizes.append(len(level))
        level = level[0]
    ranges = [f"[{first}:{first + size - 1}]" for first, size in zip(lower, sizes, strict=True)]
    return "".join(ranges) + "=" if lower else ""


def _items(items, delimiter=","):
    made = []
    for item in items:
        if isinstance(item, tuple):
            made.append(_items(item, delimiter))
        elif item is None:
            made.append("NULL")
        else:
            made.append('"' + as_text(item).replace("\\", "\\\\").replace('"', '\\"') + '"')
    return "{" + delimiter.join(made) + "}"


@pytest.fixture(params=postgres_servers.VERSIONS)
def typed(request):
    """A database with a table of one column for each type; as server, URL and types."""
    server = postgres_servers.shared(request.param)
    name = server.new_database()
    with server.connect(name) as connection:
        there = {one for (one,) in connection.execute("SELECT name FROM pg_available_extensions").fetchall()}
        for extension in there.intersection(EXTENSIONS):
            connection.execute(f"CREATE EXTENSION {extension}")
        connection.execute(PREPARE)
        missing = set(EXTENSIONS) - there
        types = [one for one in FIXED if one.removesuffix("[]") not in missing]
        columns = ", ".join(f"c{number} {type_}" for number, type_ in enumerate(types))
        connection.execute(f"CREATE TABLE typed (id int PRIMARY KEY, {columns})")
    yield server, name, types
    server.drop_database(name)


async def test_every_value_comes_back_equal_when_the_server_reads_its_image(typed):
    server, name, types = typed
    chance = random.Random(7)
    columns = [
        [*FIXED[type_], *(one for _ in range(ROUNDS) for one in randomly(chance).get(type_, []))] for type_ in types
    ]
    rows = max(map(len, columns))
    async with captured(server.sql_url(name)) as capture:
        with server.connect(name) as connection:
            for number in range(rows):
                row = [values[number] if number < len(values) else None for values in columns]
                marks = ", ".join(f"%s::{type_}" for type_ in types)
                connection.execute(f"INSERT INTO typed VALUES ({number}, {marks})", row)
        changes = await capture.changes(rows)
        schema = capture.schema("typed")
    images = {change[4]["id"]: change[4] for change in changes}
    with server.connect(name) as connection:
        for place, type_ in enumerate(types):
            column = f"c{place}"
            for number in range(rows):
                value = images[number][column]
                text = as_text(value)
                if type_ in DELIMITERS and value is not None:
                    text = _items(value.items, DELIMITERS[type_])
                # Equal in the form that the server writes: some types have no equality, and of floats -0 equals 0.
                equal = f"{column}::text IS NOT DISTINCT FROM (%s::text)::{type_}::text"
                query = f"SELECT {equal}, {column}::text FROM typed WHERE id = %s"
                equal, kept = connection.execute(query, [text, number]).fetchone()
                assert equal, f"{type_}: {kept!r} came as {value!r}"
    assert {one.name for one in schema.columns} == {"id", *(f"c{place}" for place in range(len(types)))}


async def test_rows_that_are_read_have_the_images_that_are_captured(typed):
    """Byte by byte, for every type: copies and changes of a row are one and the same."""
    server, name, types = typed
    async with reading(server.sql_url(name)) as found:
        with server.connect(name) as connection:
            for number in range(max(map(len, FIXED.values()))):
                row = [FIXED[type_][number] if number < len(FIXED[type_]) else None for type_ in types]
                marks = ", ".join(f"%s::{type_}" for type_ in types)
                connection.execute(f"INSERT INTO typed VALUES ({number}, {marks})", row)
        rows, taken = await found.snapshot("typed")
        pages = [page async for page in found.pages("typed", 3)]
        await found.catch_up()
    changes = [(key, image) for draft in found.drafts for key, image in zip(draft.keys, draft.afters, strict=True)]
    assert rows == dict(changes)
    assert [pair for page in pages for pair in zip(page.rows().keys, page.rows().images, strict=True)] == changes
    assert taken.schema == found.registry.latest_schema(taken.schema.table)[1]


async def test_columns_tell_their_kind_and_what_there_is_to_know_of_their_type(typed):
    server, name, types = typed
    async with captured(server.sql_url(name)) as capture:
        schema = capture.schema("typed")
    found = {type_: schema.column(f"c{place}") for place, type_ in enumerate(types)}
    kinds = {
        "bigint": Kind.I64,
        "numeric(10,2)": Kind.DEC,
        "real": Kind.F64,
        "text": Kind.STR,
        "citext": Kind.STR,
        "bytea": Kind.BYTES,
        "jsonb": Kind.JSON,
        "timestamptz": Kind.DATETIME,
        "interval": Kind.INTERVAL,
        "mood": Kind.ENUM,
        "bit(4)": Kind.BIT,
        "macaddr8": Kind.NETWORK,
        "int4multirange": Kind.RANGE,
        "floatrange": Kind.RANGE,
        "pair": Kind.COMPOSITE,
        "hstore": Kind.FOREIGN,
        "xml": Kind.FOREIGN,
        "int2vector": Kind.FOREIGN,
        "positive": Kind.I64,
        "tags": Kind.ARRAY,
        "int[]": Kind.ARRAY,
    }
    assert {type_: found[type_].kind for type_ in kinds} == kinds
    assert found["numeric(10,2)"].declared == "numeric(10,2)"
    assert found["hstore"].declared == "hstore"
    assert found["other.kind"].declared == "other.kind"
    assert found["timestamptz"].zone is True
    assert found["timestamp"].zone is False
    assert found["mood"].labels == ("sad", "so so", 'it\'s "fine"')
    assert (found["small_positive"].declared, found["small_positive"].base) == ("small_positive", "integer")
    assert (found["int[]"].element.kind, found["int[]"].dimensions) == (Kind.I64, 1)
    assert found["tags"].element.kind is Kind.STR
