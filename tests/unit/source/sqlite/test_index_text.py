import pytest

from tailrace.source.sqlite.index_text import IndexText, parse_index


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("CREATE UNIQUE INDEX i ON t(a)", IndexText(("a",))),
        ("CREATE UNIQUE INDEX i ON t(a, b DESC)", IndexText(("a", "b"))),
        (
            "create unique index i on t (lower(a) collate nocase desc, b asc) where b>3",
            IndexText(("lower(a)", "b"), "b>3"),
        ),
        ("CREATE INDEX i ON t(coalesce(a, ',)'), abs(b)DESC)", IndexText(("coalesce(a, ',)')", "abs(b)"))),
        ('CREATE INDEX "i(" ON "t,("("a)" COLLATE "no case")', IndexText(('"a)"',))),
        ("CREATE INDEX i ON [t(](`b,`)", IndexText(("`b,`",))),
        ("CREATE INDEX i ON t(a /* ,b */, c -- ,d\n) WHERE a IN (1, 2)", IndexText(("a", "c"), "a IN (1, 2)")),
        ("CREATE INDEX i ON t(a) WHERE b = 'WHERE (' AND (c)", IndexText(("a",), "b = 'WHERE (' AND (c)")),
        ("CREATE INDEX i ON t(a COLLATE [x y])", IndexText(("a",))),
        ("CREATE INDEX i ON t(description)", IndexText(("description",))),
    ],
)
def test_an_index_is_taken_apart_as_it_was_written(sql, expected):
    assert parse_index(sql) == expected
