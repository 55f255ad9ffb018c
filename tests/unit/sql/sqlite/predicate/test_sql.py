"""The parser: what it takes apart and how, and what it refuses and where."""

import pytest

from tailrace.model.errors import InvalidPredicateError
from tailrace.sql.sqlite.predicate import compile_where
from tailrace.sql.sqlite.predicate.sql import BRANCHES_MAX, DEPTH_MAX, NODES_MAX, parse
from tailrace.sql.sqlite.predicate.syntax import SqlLiteral, SqlOperation
from unit.sql.sqlite.predicate.sqlite_oracle import SCHEMA, Oracle

GROUPINGS = [
    ("i = 1 OR r = 2 AND s = 3", "i = 1 OR (r = 2 AND s = 3)"),
    ("NOT i = 1 AND r = 2", "(NOT (i = 1)) AND r = 2"),
    ("i < r IN (1)", "(i < r) IN (1)"),
    ("i = r < 5", "i = (r < 5)"),
    ("i IS r = 1", "(i IS r) = 1"),
    ("i & 1 = 1", "(i & 1) = 1"),
    ("i + 2 * 3 = 7", "(i + (2 * 3)) = 7"),
    ("i - 1 - 1 = 0", "((i - 1) - 1) = 0"),
    ("s || 1 * 2 = 4", "((s || 1) * 2) = 4"),
    ("i BETWEEN 1 AND 2 AND r", "(i BETWEEN 1 AND 2) AND r"),
    ("i BETWEEN r = 1 AND 2", "i BETWEEN (r = 1) AND 2"),
    ("s LIKE 'a' ESCAPE 'b' = 1", "(s LIKE 'a' ESCAPE 'b') = 1"),
    ("i = NOT r = 1", "i = (NOT (r = 1))"),
    ("-i * 2 = 4", "((-i) * 2) = 4"),
    ("i << 1 + 1 = 8", "(i << (1 + 1)) = 8"),
    ("i NOT IN (1) = 1", "(i NOT IN (1)) = 1"),
    ("i ISNULL = 0", "(i ISNULL) = 0"),
    ("s COLLATE NOCASE || 'x' = 'y'", "((s COLLATE NOCASE) || 'x') = 'y'"),
]


@pytest.mark.parametrize(("bare", "bracketed"), GROUPINGS)
def test_operators_bind_as_in_sqlite(bare, bracketed):
    assert compile_where(bare, SCHEMA).canonical == compile_where(bracketed, SCHEMA).canonical


REFUSED = [
    ("", "one condition", 0),
    ("   ", "one condition", 0),
    ("i =", "missing at the end", 3),
    ("i = = 1", "not expected", 4),
    ("i = 1)", "not expected", 5),
    ("(i = 1", "expected )", 6),
    ("i = 1; SELECT 1", "not expected", 5),
    ("'a' 'b'", "not expected", 4),
    ("i = 1 r", "not expected", 6),
    ("SELECT 1", "statements", 0),
    ("i = (SELECT 1)", "sub-queries", 5),
    ("i IN (SELECT 1)", "sub-queries", 6),
    ("i IN ()", "at least one value", 6),
    ("i IN t", "IN takes a list", 5),
    ("EXISTS (SELECT 1)", "statements", 0),
    ("NOT EXISTS (SELECT 1)", "sub-queries", 4),
    ("i = ?", "parameters", 4),
    ("i = :p", "parameters", 4),
    ("i = @p", "parameters", 4),
    ("i = $p", "parameters", 4),
    ("count(*) > 1", "aggregates", 0),
    ("sum(i) OVER () > 1", "window", 0),
    ("count(DISTINCT i) > 1", "aggregates", 0),
    ("CURRENT_TIMESTAMP > 1", "one moment to the next", 0),
    ("(i, r) = (1, 2)", "row values", 2),
    ("s REGEXP 'a'", "REGEXP is not supported", 2),
    ("s NOT MATCH 'a'", "MATCH is not supported", 6),
    ("s -> 'a' = 1", "-> is not supported", 2),
    ("i NOT 5", "after NOT", 6),
    ("i BETWEEN 1", "BETWEEN needs AND", 11),
    ("s GLOB 'a' ESCAPE 'b'", "no ESCAPE", 18),
    ("CASE i END = 1", "WHEN", 0),
    ("CASE WHEN i THEN 1 = 1", "CASE needs END", 22),
    ("CAST(i) = 1", "CAST needs AS", 6),
    ("i = 12345678901234567890", "19 digits", 4),
    ("i = 1 -- comment", "comments", 6),
    ("i /* x */ = 1", "comments", 2),
    ("i = 'open", "not closed", 4),
    ("i = N'x'", "not expected", 5),
    ("1NOT NULL", "cannot read", 0),
    ("i = x'123'", "cannot read", 4),
    ("i = 0xz", "cannot read", 4),
    ("i\u00a0= 1", "unknown character", 1),
    ("i = '\0'", "NUL", 5),
    ("i::int = 1", "parameters", 1),
    ("i = {{x}}", "unknown character", 4),
    ("WHERE i = 1", "not expected", 0),
    ("i COLLATE 5 = 1", "collation", 10),
    ("t. = 1", "name of a column", 3),
]


@pytest.mark.parametrize(("text", "reason", "place"), REFUSED)
def test_what_is_no_predicate_is_refused_at_its_place(text, reason, place):
    with pytest.raises(InvalidPredicateError) as caught:
        parse(text)
    assert reason in caught.value.reason
    assert caught.value.place == place


def test_an_error_shows_the_line_and_a_mark_under_the_place():
    with pytest.raises(InvalidPredicateError) as caught:
        parse("i = 1 AND\n  r = = 2")
    assert str(caught.value).split("\n")[1:] == ["    r = = 2", "        ^"]


@pytest.mark.parametrize("text", ["'x'", "a = 1" + " " * 65_536], ids=["short", "long"])
def test_a_text_has_a_bound(text):
    if len(text) < 100:
        assert parse(text) == SqlLiteral("x", 0)
    else:
        with pytest.raises(InvalidPredicateError, match="at most 65536 characters"):
            parse(text)


DEEP = {
    "brackets": "(" * 500 + "i" + ")" * 500,
    "signs": "~" * 500 + "i",
    "minus": "- " * 500 + "i",
    "NOT": "NOT " * 500 + "i",
    "sums": "+".join(["i"] * 500),
    "texts": "||".join(["s"] * 500),
    "functions": "abs(" * 500 + "i" + ")" * 500,
    "cases": "CASE WHEN 1 THEN " * 500 + "1" + " END" * 500,
    "comparisons": "=".join(["i"] * 500),
    "lists": "i IN (" * 500 + "1" + ")" * 500,
    "between": "i BETWEEN 0 AND " * 500 + "1",
}


@pytest.mark.parametrize("text", DEEP.values(), ids=DEEP)
def test_depth_has_a_bound(text):
    with pytest.raises(InvalidPredicateError, match=f"at most {DEPTH_MAX} levels"):
        parse(text)


def test_chains_of_and_and_of_or_are_one_level_and_have_a_bound_of_their_own():
    chain = parse(" AND ".join(["i = 1"] * 2000))
    assert isinstance(chain, SqlOperation)
    assert len(chain.operands) == 2000
    with pytest.raises(InvalidPredicateError, match=f"at most {NODES_MAX} parts"):
        parse("1" + " OR 1" * 12000)


def test_functions_and_cases_have_a_bound_on_their_parts():
    with pytest.raises(InvalidPredicateError, match=f"at most {BRANCHES_MAX} arguments"):
        parse(f"max({', '.join(['1'] * 65)})")
    with pytest.raises(InvalidPredicateError, match=f"1 to {BRANCHES_MAX} branches"):
        parse(f"CASE {'WHEN 1 THEN 1 ' * 65}END")


@pytest.mark.parametrize("text", [text for text, _ in GROUPINGS])
def test_sqlite_takes_what_we_take(text):
    assert Oracle([]).ask(text) == []


BINARY = ["=", "==", "<>", "!=", "<", "<=", ">", ">=", "+", "-", "*", "/", "%", "&", "|", "<<", ">>", "||"]


@pytest.mark.parametrize("operator", BINARY)
@pytest.mark.parametrize("prefix", ["-", "+", "~", "~~", "-~", "~-", "+-"])
def test_signs_without_spaces_between_them_are_read_as_sqlite_does(operator, prefix):
    if operator + prefix[0] != "--":
        tight, spaced = f"(i{operator}{prefix}2)ISNULL", f"(i {operator} {' '.join(prefix)} 2) ISNULL"
        assert compile_where(tight, SCHEMA).canonical == compile_where(spaced, SCHEMA).canonical
        assert Oracle([]).ask(tight) == []


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5", 5),
        ("-5", -5),
        ("0x10", 16),
        ("0xFFFFFFFFFFFFFFFF", -1),
        ("9223372036854775807", 2**63 - 1),
        ("-9223372036854775808", -(2**63)),
        ("-09223372036854775808", -(2**63)),
        ("-(9223372036854775808)", -(2**63)),
        ("- ((+(9223372036854775808)))", -(2**63)),
        ("9223372036854775808", 9223372036854775808.0),
        ("1.5", 1.5),
        (".5", 0.5),
        ("5.", 5.0),
        ("1e3", 1000.0),
        ("'it''s'", "it's"),
        ("x'6162'", b"ab"),
        ("NULL", None),
    ],
)
def test_literals_have_sqlites_values(text, value):
    node = parse(text)
    assert isinstance(node, SqlLiteral)
    assert (node.value, type(node.value)) == (value, type(value))
