import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from strategies import table_schemas
from tailrace.log.schemas import SCHEMAS_NAME, Schemas, numbered
from tailrace.model.errors import CorruptSegmentError
from tailrace.model.table import Column, TableName, TableSchema
from tailrace.testing.files import Crash, MemoryFiles


def schema(name: str, version: int = 1) -> TableSchema:
    return TableSchema(TableName("app", name), version, (Column(f"c{version}"),), ddl=f"CREATE TABLE {name}")


def opened(files: MemoryFiles) -> Schemas:
    schemas = Schemas(files)
    schemas.recover()
    return schemas


@given(st.lists(table_schemas(), max_size=5, unique_by=lambda schema: schema.table))
def test_schemas_are_there_again_after_a_restart(given_schemas):
    files = MemoryFiles()
    schemas = opened(files)
    numbers = [schemas.put(one) for one in given_schemas]
    again = opened(files.after_crash(0))
    assert numbers == list(range(1, len(given_schemas) + 1))
    assert [again.known[number] for number in numbers] == given_schemas


def test_the_same_version_keeps_its_number_and_the_latest_is_the_one_put_last():
    schemas = opened(MemoryFiles())
    assert [schemas.put(one) for one in (schema("a"), schema("b"), schema("a", 2), schema("a"))] == [1, 2, 3, 1]
    assert schemas.latest(TableName("app", "a")) == (3, schema("a", 2))
    assert schemas.latest(TableName("app", "b")) == (2, schema("b"))
    assert schemas.latest(TableName("app", "c")) is None


def test_a_version_cannot_become_another_schema():
    schemas = opened(MemoryFiles())
    schemas.put(schema("a"))
    with pytest.raises(ValueError, match="already another schema"):
        schemas.put(replace(schema("a"), ddl="CREATE TABLE other"))


def test_every_cut_of_the_last_line_is_cut_off_and_the_number_given_again():
    files = MemoryFiles()
    schemas = opened(files)
    schemas.put(schema("a"))
    whole = len(files.bytes_of(SCHEMAS_NAME))
    schemas.put(schema("b"))
    data = files.bytes_of(SCHEMAS_NAME)
    for size in range(whole, len(data)):
        files.put(SCHEMAS_NAME, data[:size])
        again = opened(files)
        assert list(again.known) == [1]
        assert len(files.bytes_of(SCHEMAS_NAME)) == whole
        assert again.put(schema("c")) == 2
        assert dict(opened(files).known) == {1: schema("a"), 2: schema("c")}


def test_every_flipped_bit_gives_an_error_or_a_torn_last_line_never_another_schema():
    files = MemoryFiles()
    schemas = opened(files)
    schemas.put(schema("a"))
    schemas.put(schema("b"))
    data = files.bytes_of(SCHEMAS_NAME)
    refused = 0
    for bit in range(len(data) * 8):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        files.put(SCHEMAS_NAME, bytes(damaged))
        again = Schemas(files)
        try:
            again.load()
        except CorruptSegmentError:
            refused += 1
        assert all(again.known[number] == schemas.known[number] for number in again.known)
    assert refused > len(data)


@pytest.mark.parametrize("fault", ["fail_writes", "fail_syncs"])
def test_after_a_fault_nothing_was_kept_and_the_next_one_works(fault):
    files = MemoryFiles()
    schemas = opened(files)
    schemas.put(schema("a"))
    setattr(files, fault, 1)
    with pytest.raises(OSError, match="Input/output"):
        schemas.put(schema("b"))
    assert list(schemas.known) == [1]
    assert schemas.put(schema("c")) == 2
    assert schemas.put(schema("b")) == 3
    assert dict(opened(files.after_crash(0)).known) == {1: schema("a"), 2: schema("c"), 3: schema("b")}


def test_a_last_line_of_which_sectors_were_not_written_is_torn_and_one_before_it_is_damaged():
    files = MemoryFiles()
    schemas = opened(files)
    for number in (1, 2):
        schemas.put(schema("a", number))
    schemas.close()
    data = files.bytes_of(SCHEMAS_NAME)
    second = data.index(b"\n") + 1
    files.put(SCHEMAS_NAME, data[:second] + bytes(20) + data[second + 20 :])
    assert list(opened(files).known) == [1]
    files.put(SCHEMAS_NAME, bytes(20) + data[20:])
    with pytest.raises(CorruptSegmentError):
        opened(files)


def test_a_crash_at_any_point_keeps_every_schema_that_was_put():
    at = 0
    while True:
        files = MemoryFiles()
        files.crash_at = at
        done = 0
        try:
            schemas = opened(files)
            for number in range(3):
                schemas.put(schema("a", number + 1))
                done += 1
        except Crash:
            for seed in range(6):
                known = opened(files.after_crash(seed)).known
                assert len(known) >= done
                assert all(known[number].version == number for number in known)
            at += 1
        else:
            break
    assert at > 6


def versions(text, first=1):
    """Return a table's versions, one for each letter, which is the name of its one column."""
    return [TableSchema(TableName("app", "t"), number, (Column(letter),)) for number, letter in enumerate(text, first)]


@pytest.mark.parametrize(
    ("known", "history", "numbers"),
    [
        ("", "a", [1]),
        ("", "aba", [1, 2, 3]),
        ("a", "a", [1]),
        ("a", "b", [2]),
        ("ab", "abc", [1, 2, 3]),
        ("aba", "aba", [1, 2, 3]),
        ("aba", "ba", [2, 3]),
        ("aba", "a", [3]),
        ("aba", "b", [4]),
        ("aba", "ac", [3, 4]),
        ("a", "aa", [1, 2]),
        ("aa", "aa", [1, 2]),
        ("aa", "a", [2]),
        ("ab", "xb", [3, 4]),
    ],
)
def test_what_is_told_again_keeps_its_numbers_and_what_is_new_follows(known, history, numbers):
    found = numbered(versions(known), versions(history, first=40))
    assert [schema.version for schema in found] == numbers
    assert [schema.columns[0].name for schema in found] == list(history)


@given(st.text("ab", max_size=6), st.text("ab", min_size=1, max_size=6))
def test_a_history_that_grows_is_told_anew_without_new_numbers(earlier, later):
    known = versions(earlier)
    once = numbered(known, versions(earlier + later))
    assert once == versions(earlier + later)
    assert numbered(once, versions(earlier + later)) == once
    assert numbered(once, [once[-1]]) == [once[-1]]
