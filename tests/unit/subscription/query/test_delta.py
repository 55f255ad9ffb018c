from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.subscription.query.delta import Delta, difference

ROWS = st.lists(st.tuples(st.sampled_from([1, 2, 3, None, "a"])), max_size=8)


@pytest.mark.parametrize(
    ("old", "new", "added", "removed", "reordered"),
    [
        ([], [], [], [], False),
        ([(1,)], [(1,)], [], [], False),
        ([(1,)], [(1,), (2,)], [(2,)], [], False),
        ([(1,), (1,)], [(1,)], [], [(1,)], False),
        ([(1,)], [(1,), (1,)], [(1,)], [], False),
        ([(1,), (2,)], [(2,), (1,)], [], [], True),
        ([(1,)], [(1.0,)], [(1.0,)], [(1,)], False),
        ([(0.0,)], [(-0.0,)], [(-0.0,)], [(0.0,)], False),
        ([(float("nan"),)], [(float("nan"),)], [], [], False),
        ([(b"a",)], [("a",)], [("a",)], [(b"a",)], False),
    ],
)
def test_rows_are_added_and_removed(old, new, added, removed, reordered):
    delta = difference(old, new, rows_max=10)
    assert repr(delta) == repr(Delta(tuple(added), tuple(removed), reordered))


@settings(deadline=None)
@given(ROWS, ROWS)
def test_the_old_result_without_and_with_is_the_new_result(old, new):
    delta = difference(old, new, rows_max=100)
    assert Counter(old) - Counter(delta.removed) + Counter(delta.added) == Counter(new)
    assert not Counter(delta.added) & Counter(delta.removed)
    if not delta.added and not delta.removed:
        assert delta.reordered is (old != new)


def test_a_difference_beyond_the_bound_is_not_told():
    assert difference([(1,)], [(2,)], rows_max=1) is None
    assert difference([(1,)], [(2,)], rows_max=2) is not None
