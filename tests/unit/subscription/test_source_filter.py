"""Facts about filters of a whole source."""

import pytest

from feeding import chunk_of, draft_of, schema_of
from tailrace.model.commit import Draft
from tailrace.model.errors import PredicateError
from tailrace.model.op import Op
from tailrace.model.subscription import FilterOptions, SourceTarget, TableTarget
from tailrace.model.table import Column, Kind, TableName
from tailrace.subscription.filter import Filter
from tailrace.subscription.source_filter import SourceFilter

ALL = tuple(Op)
SCHEMAS = [
    schema_of("users"),
    schema_of("orders"),
    schema_of("users", space="other"),
    schema_of("priced", columns=(Column("id", Kind.I64), Column("price", Kind.I64))),
]


def chosen(names, options, count=1):
    """Return the rows that pass, of `count` changes of each schema in turn."""
    draft = draft_of([(Op.INSERT, number) for _ in range(count) for number in range(1, len(SCHEMAS) + 1)])
    chunk = chunk_of(SCHEMAS, draft)
    return list(SourceFilter(SourceTarget("app", names), options).select(chunk))


@pytest.mark.parametrize("count", [1, 20])
@pytest.mark.parametrize(
    ("names", "schemas"),
    [((), {0, 1, 2, 3}), (("users",), {0}), (("other.users", "orders"), {1, 2}), (("Users",), set()), ((".",), set())],
)
def test_tables_are_chosen_by_their_exact_names_and_no_name_is_all(names, schemas, count):
    rows = [row for row in range(len(SCHEMAS) * count) if row % len(SCHEMAS) in schemas]
    assert chosen(names, FilterOptions(ALL), count) == rows


def test_of_all_tables_those_that_lack_a_column_have_nothing_that_passes():
    assert chosen((), FilterOptions(ALL, where="name = 'n0' OR name = 'n2'")) == [0, 2]
    assert chosen((), FilterOptions(ALL, where="absent = 1")) == []


def test_a_table_that_lacks_a_column_has_no_schema_changes_that_pass_either():
    draft = Draft("p", 1)
    draft.add(Op.SCHEMA, 1, b"[]", after=b'{"ddl":""}')
    draft.add(Op.SCHEMA, 4, b"[]", after=b'{"ddl":""}')
    wanted = SourceFilter(SourceTarget("app"), FilterOptions(ALL, where="price = 1"))
    assert list(wanted.select(chunk_of(SCHEMAS, draft))) == [1]


def test_a_table_that_was_asked_for_by_name_and_lacks_a_column_fails():
    with pytest.raises(PredicateError, match="no longer fits"):
        chosen(("priced",), FilterOptions(ALL, where="name = 'n0'"))


def test_a_key_in_its_raw_form_is_found_in_whatever_table():
    named = schema_of("named", columns=(Column("name", Kind.STR),), key=("name",))
    draft = Draft("p", 1)
    for schema, key in ((1, b"[7]"), (2, b'["[7]"]'), (1, b"[8]"), (2, b'["7"]')):
        draft.add(Op.INSERT, schema, key)
    wanted = SourceFilter(SourceTarget("app"), FilterOptions(ALL, raw_key=b"[7]"))
    assert list(wanted.select(chunk_of([SCHEMAS[0], named], draft))) == [0, 1]


def test_filters_are_equal_when_they_choose_the_same():
    options = FilterOptions(ALL, where="id = 1")
    by_name = SourceFilter(SourceTarget("app", ("users",)), options)
    assert by_name == Filter(TableTarget((TableName("app", "users"),)), options)
    assert by_name != SourceFilter(SourceTarget("app"), options)
    assert SourceFilter(SourceTarget("app"), options) == SourceFilter(SourceTarget("app"), options)
    assert SourceFilter(SourceTarget("app"), FilterOptions(ALL, raw_key=b"1")) != SourceFilter(
        SourceTarget("app"), FilterOptions(ALL)
    )


def test_more_versions_than_a_plain_filter_keeps_are_compiled_once_each():
    schemas = [schema_of(f"t{number}") for number in range(40)]
    chunk = chunk_of(schemas, draft_of([(Op.INSERT, number) for number in range(1, 41)]))
    wanted = SourceFilter(SourceTarget("app"), FilterOptions(ALL, where="id >= 0"))
    assert len(wanted.select(chunk)) == 40
    compiled = [wanted.for_schema(number, schemas[number - 1]) for number in range(1, 41)]
    assert all(wanted.for_schema(number, schemas[number - 1]) is compiled[number - 1] for number in range(1, 41))
