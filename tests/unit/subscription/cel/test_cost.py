"""Facts about bounds of the work of CEL expressions."""

import contextlib
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.model.errors import InvalidPredicateError, PredicateError
from tailrace.model.image import encode_image
from tailrace.model.op import Op
from tailrace.model.table import Column, Kind, TableName, TableSchema
from tailrace.model.value import Text
from tailrace.subscription.cel.compile import compile_cel, compile_cel_value
from tailrace.subscription.cel.cost import ROW_NS_MAX, CelCost
from tailrace.subscription.cel.text import read_cel

DOCUMENTS = TableSchema(
    TableName("app", "documents"),
    1,
    (Column("id", Kind.I64), Column("body", Kind.STR), Column("tags", Kind.JSON), Column("extra", Kind.ANY)),
    ("id",),
)


def zeros(count):
    return "[" + ",".join("0" * count) + "]"


TOO_MUCH = {
    "a chain of maps": zeros(1000) + ".map(x,x)" * 40 + ".size()>0",
    "the chain that stopped a server": zeros(5000) + ".map(x,x)" * 400 + ".size()>0",
    "a list mapped once that is too long": zeros(1900) + ".map(x,x).size()>0",
    "a filter that copies": zeros(1900) + ".filter(x,x==0).size()>0",
    "texts that double": "['aaaaaaaa']" + ".map(x,x+x)" * 30 + ".size()>0",
    "lists that double": "[[0]]" + ".map(x,x+x)" * 30 + ".size()>0",
    "texts that double beside each other": "['a'].map(x,"
    + "+".join("x" * 900)
    + ")"
    + ".map(x,x+x)" * 12
    + ".size()>0",
    "texts of the row that double": "[row.body]" + ".map(x,x+x)" * 25 + ".size()>0",
    "a row looked at for each element": zeros(1000)
    + ".all(x, row.body.contains(row.body + 'x'))"
    + "&&"
    + zeros(1000)
    + ".all(x, row.body.matches('(a|b)*c'))",
    "a pattern that repeats repetitions": "row.body.matches('(x{0,1000}y?){0,50}z')",
    "a pattern of large classes": r"row.body.matches(r'\w{200}')",
    "a pattern of large classes behind an escape": r"row.body.matches('\x5cw{200}')",
    "a pattern that is folded": "row.body.matches('(?i)" + "a" * 9000 + "')",
    "a pattern with comments": "row.body.matches('(?x)#[\\n.')",
    "a pattern with very many groups": "row.body.matches('" + "(" * 200 + ")" * 200 + "')",
    "a pattern for each element": zeros(100) + r".all(x, row.body.matches(r'\w+'))",
    "code behind a raw text": r"r'\' == '' || "
    + zeros(5)
    + ".map(x,x)" * 47
    + r".all(x, 'a'.matches(r'\w{99}')) || r'\' == ''",
}


@pytest.mark.parametrize("text", TOO_MUCH.values(), ids=TOO_MUCH)
def test_an_expression_that_could_take_too_long_is_refused_before_it_runs(text):
    with pytest.raises(InvalidPredicateError):
        compile_cel(text[:16_384], DOCUMENTS)
    with pytest.raises(InvalidPredicateError):
        compile_cel_value(text[:16_384], DOCUMENTS)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (zeros(1900) + ".map(x,x).size()>0", "shorten lists"),
        ("row.body.matches(row.extra)", "must be a literal"),
        ("[" + "1," * 3000 + "1].size() > 0", "at most 2048 parts"),
        ("[" * 60 + "]" * 60 + ".size() > 0", "at most 48 levels deep"),
        ("!" * 60 + "true", "at most 48 levels deep"),
        ("false ? true : " * 60 + "true", "at most 48 levels deep"),
        ("[0]" + ".map(x,x)" * 60 + ".size() > 0", "at most 48 levels deep"),
        ("row" + ".body" * 60 + " == 1", "at most 48 levels deep"),
    ],
)
def test_a_refusal_says_what_to_do(text, reason):
    with pytest.raises(InvalidPredicateError) as caught:
        compile_cel(text, DOCUMENTS)
    assert reason in caught.value.reason


def document(body="", tags="[]", extra=None):
    return encode_image({"id": 1, "body": body, "tags": Text(Kind.JSON, tags), "extra": extra}, DOCUMENTS)


ORDINARY = [
    "row.body.contains('x') && row.id > 3",
    " || ".join(f"row.body == 'name{number}'" for number in range(300)),
    "row.id in [" + ",".join(map(str, range(2, 1500))) + "]",
    r"row.body.matches('^[a-z0-9._%+-]+@[a-z0-9.-]+\\.[a-z]{2,8}$')",
    r"row.body.matches(r'\d+-\w+')",
    "row.tags.exists(tag, tag == 'new')",
    "row.tags.filter(tag, tag.startsWith('n')).size() > 1",
    "row.tags.map(tag, tag + '!').exists(tag, tag == 'new!')",
    "op == 'update' && (before == null || before.body != after.body)",
]


@pytest.mark.parametrize("text", ORDINARY)
def test_an_ordinary_expression_passes_rows_of_ordinary_size(text):
    predicate = compile_cel(text, DOCUMENTS)
    image = document("a" * 4000, "[" + ",".join(['"tag"'] * 60) + "]")
    assert predicate.select([Op.INSERT], [None], [image]) == [False]


@pytest.mark.parametrize(
    ("text", "body", "tags"),
    [
        ("row.tags.map(tag, tag).size() > 0", "", "[" + ",".join("0" * 20_000) + "]"),
        ("row.body.matches('(a|b)*a(a|b){20}c')", "ab" * 100_000, "[]"),
        ("[row.body].map(x,x+x).map(x,x+x).map(x,x+x).map(x,x+x).size() > 0", "a" * 4_000_000, "[]"),
    ],
)
def test_a_row_that_is_too_large_for_its_expression_is_refused_before_it_is_evaluated(text, body, tags):
    predicate = compile_cel(text, DOCUMENTS)
    with pytest.raises(PredicateError, match="a row is so large"):
        predicate.select([Op.INSERT], [None], [document(body, tags)])
    with pytest.raises(PredicateError, match="a row is so large"):
        compile_cel_value(text, DOCUMENTS).of(Op.INSERT, document(body, tags))


LISTS = st.integers(0, 60).map(zeros) | st.sampled_from(
    ["row.tags", "[row.body, 'a']", "['a', row.body]", "[row.tags]"]
)
LINKS = st.sampled_from(
    [
        ".map(x,x)",
        ".filter(x,true)",
        ".map(x,[x,x])",
        ".map(x,[x]+[x])",
        ".map(x,'a'+row.body)",
        ".map(x,row.tags)",
        ".map(x,string(size(row.body)))",
        ".filter(x,x in row.tags)",
        ".map(x,x==row.tags)",
    ]
)
ENDS = st.sampled_from(
    [".size() > 0", ".exists(x, x == row.body)", ".all(x, row.body.matches('(a|b)*a(a|b){4}[cd]'))", " == row.tags"]
)


@settings(max_examples=60, deadline=None)
@given(LISTS, st.lists(LINKS, max_size=6), ENDS, st.integers(0, 30_000), st.integers(0, 800))
def test_no_expression_takes_much_longer_than_its_bound(base, links, end, body, tags):
    """The bound is of the work, and time is what it is made of; a busy machine is given twenty times as much."""
    text = base + "".join(links) + end
    try:
        predicate = compile_cel(text, DOCUMENTS)
    except InvalidPredicateError:
        return
    image = document("ab" * (body // 2), "[" + ",".join("7" * tags) + "]")
    begin_s = time.thread_time()
    with contextlib.suppress(PredicateError):
        predicate.select([Op.INSERT], [None], [image])
    assert time.thread_time() - begin_s < 20 * ROW_NS_MAX / 1e9


@given(st.integers(0, 1 << 20), st.integers(0, 1 << 16))
def test_a_larger_row_never_costs_less(row_bytes, elements):
    text = "row.tags.map(tag, tag + row.body).exists(tag, tag.matches('a+b'))"
    cost = CelCost(read_cel(text, DOCUMENTS).tree, text)
    assert cost.time_ns(row_bytes, elements) <= cost.time_ns(row_bytes + 1, elements)
    assert cost.time_ns(row_bytes, elements) <= cost.time_ns(row_bytes, elements + 1)
