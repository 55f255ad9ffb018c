from hypothesis import given
from hypothesis import strategies as st

from tailrace.source.sqlite.history import History, fresh_mark

CELLS = st.none() | st.integers(-(2**63), 2**63 - 1) | st.floats() | st.text() | st.binary()
ROWS = st.lists(st.lists(CELLS, min_size=1, max_size=20).map(tuple), min_size=1, max_size=12)


def numbered(rows, *, width=20):
    """Return rows of a change table of that many cells."""
    return [(number, 9, *cells, *[None] * (width - len(cells))) for number, cells in enumerate(rows, 1)]


def marked(rows, mark):
    history = History(0, mark)
    history.extend(rows)
    return history.number, history.mark


@given(ROWS, st.data())
def test_a_history_does_not_depend_on_how_its_rows_were_read(rows, data):
    mark = fresh_mark()
    cut = data.draw(st.integers(0, len(rows)))
    whole = numbered(rows)
    history = History(*marked(whole[:cut], mark))
    history.extend(whole[cut:])
    assert (history.number, history.mark) == marked(whole, mark)


@given(ROWS, st.integers(20, 32))
def test_cells_that_the_table_got_later_change_no_history(rows, width):
    mark = fresh_mark()
    assert marked(numbered(rows, width=width), mark) == marked(numbered(rows), mark)


@given(ROWS, st.data())
def test_another_cell_is_another_history(rows, data):
    mark = fresh_mark()
    place = data.draw(st.integers(0, len(rows) - 1))
    cell = data.draw(st.integers(0, len(rows[place]) - 1))
    other = [list(row) for row in rows]
    other[place][cell] = "another" if rows[place][cell] != "another" else 1
    assert marked(numbered(other), mark) != marked(numbered(rows), mark)


def test_where_a_null_stands_counts():
    mark = fresh_mark()
    assert marked([(1, 9, None, "a")], mark) != marked([(1, 9, "a", None)], mark)


def test_two_histories_never_begin_alike():
    assert len({fresh_mark() for _ in range(100)}) == 100
