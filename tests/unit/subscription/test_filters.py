"""Facts about keeping compiled filters."""

from tailrace.model.op import Op
from tailrace.model.subscription import FilterOptions, TableTarget
from tailrace.model.table import TableName
from tailrace.subscription.source_filter import FilterCache

TARGET = TableTarget((TableName("app", "users"),))


def options(number):
    return FilterOptions((Op.INSERT,), where=f"id = {number}")


def test_equal_filters_are_one_until_others_push_them_out():
    cache = FilterCache(2)
    first = cache.get(TARGET, options(1))
    second = cache.get(TARGET, options(2))
    assert cache.get(TARGET, options(1)) is first
    cache.get(TARGET, options(3))
    assert cache.get(TARGET, options(1)) is first
    assert cache.get(TARGET, options(2)) is not second


def test_filters_that_look_at_no_rows_are_not_kept():
    cache = FilterCache(2)
    plain = FilterOptions((Op.INSERT,))
    assert cache.get(TARGET, plain) == cache.get(TARGET, plain)
    assert cache.get(TARGET, plain) is not cache.get(TARGET, plain)
