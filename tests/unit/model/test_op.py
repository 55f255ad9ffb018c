"""Facts about ops."""

import pytest

from tailrace.model.op import ROW_OPS, ROWLESS, Op, wanted_ops
from tailrace.model.table import TableName


def test_the_numbers_on_disk_never_change():
    assert {op.word: int(op) for op in Op} == {"insert": 1, "update": 2, "delete": 3, "schema": 4, "truncate": 5}


def test_an_op_is_of_a_row_or_of_a_table():
    assert set(ROW_OPS) | ROWLESS == set(Op)
    assert max(ROW_OPS) < min(ROWLESS)


@pytest.mark.parametrize(
    ("asked", "given"),
    [
        ((), ()),
        ((Op.INSERT, Op.UPDATE), (Op.INSERT, Op.UPDATE)),
        ((Op.DELETE,), (Op.DELETE, Op.TRUNCATE)),
        ((Op.TRUNCATE,), (Op.TRUNCATE,)),
        (ROW_OPS, (*ROW_OPS, Op.TRUNCATE)),
    ],
)
def test_whoever_wants_deletions_gets_truncations(asked, given):
    assert wanted_ops(asked) == set(given)


@pytest.mark.parametrize(
    ("table", "statement"),
    [
        (TableName("app", "users"), 'TRUNCATE TABLE "users"'),
        (TableName("app", "orders", "public2"), 'TRUNCATE TABLE "public2"."orders"'),
        (TableName("app", 'a"b'), 'TRUNCATE TABLE "a""b"'),
    ],
)
def test_a_truncation_as_ddl_quotes_its_names(table, statement):
    assert table.truncate_statement == statement
