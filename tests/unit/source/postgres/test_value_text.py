from decimal import Decimal

import pytest

from tailrace.model.errors import InvalidValueError
from tailrace.model.table import Column, Kind
from tailrace.model.value import Array, Text
from tailrace.source.postgres.value_text import literal_of, text_of

ANY = Column("c")


@pytest.mark.parametrize(
    ("value", "column", "text"),
    [
        (True, ANY, "true"),
        (-5, ANY, "-5"),
        (1.5, ANY, "1.5"),
        (float("inf"), ANY, "inf"),
        (Decimal("1.10"), ANY, "1.10"),
        ("it's", ANY, "it's"),
        (b"\x00\xff", Column("c", Kind.BYTES), r"\x00ff"),
        (b"\x01", Column("c", Kind.GEOMETRY), "01"),
        (Text(Kind.DATE, "infinity"), ANY, "infinity"),
        (Array((1, None, 'a"b\\')), ANY, r'{"1",NULL,"a\"b\\"}'),
        (Array(((1, 2), (3, 4)), (0, 5)), ANY, '[0:1][5:6]={{"1","2"},{"3","4"}}'),
    ],
)
def test_values_have_the_text_that_the_server_reads(value, column, text):
    assert text_of(value, column) == text


@pytest.mark.parametrize(
    ("text", "literal"), [("a", "'a'"), ("it's", "'it''s'"), ("a\\'b", "E'a\\\\''b'"), ("\n", "'\n'")]
)
def test_literals_are_quoted(text, literal):
    assert literal_of(text, ANY) == literal


@pytest.mark.parametrize("value", [None, "a\0b"])
def test_what_has_no_text_is_refused(value):
    with pytest.raises(InvalidValueError):
        literal_of(value, ANY)
