"""Facts about events that are joined from columns: both ways give the same bytes."""

from itertools import cycle, islice

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.delivery import join as joining
from tailrace.delivery.frame import payloads
from tailrace.delivery.join import Chosen, Digits, Text, contains, join

needs_compiled = pytest.mark.skipif(joining.compiled is None, reason="the compiled helper was not built")


@pytest.fixture(params=["pure", "compiled"])
def joiner(request, monkeypatch):
    """Run a test with each way. The compiled one is left out where it was not built."""
    if request.param == "pure":
        monkeypatch.setattr(joining, "compiled", None)
    elif joining.compiled is None:
        pytest.skip("the compiled helper was not built, or is switched off")
    return request.param


@st.composite
def columns(draw, values, kind):
    """Return what makes a column of some values, which is the middle of a longer one."""
    drawn, begin = draw(st.lists(values, min_size=1, max_size=40)), draw(st.integers(0, 9))
    return lambda count: pa.array(list(islice(cycle(drawn), begin + count + 1)), kind).slice(begin, count)


numbers = st.integers(-(2**63), 2**63 - 1) | st.integers(-12, 12)
PARTS = {
    "same": st.binary(max_size=9).map(lambda same: lambda _count: same),
    "digits": st.tuples(columns(numbers, pa.int64()), st.sampled_from([1, 1000])).map(
        lambda given: lambda count: Digits(given[0](count), given[1])
    ),
    "chosen": st.sampled_from([pa.int8(), pa.int32()])
    .flatmap(lambda kind: columns(st.integers(0, 2), kind))
    .map(lambda made: lambda count: Chosen(made(count), [b"", b"one", b"two" * 50])),
    "text": st.tuples(columns(st.none() | st.binary(max_size=80), pa.binary()), st.binary(max_size=4)).map(
        lambda given: lambda count: Text(given[0](count), given[1])
    ),
}


@needs_compiled
@given(st.integers(1, 40), PARTS["text"], st.lists(st.one_of(*PARTS.values()), max_size=6), st.booleans())
def test_both_ways_give_the_same_bytes(count, first, others, framed):
    parts = [make(count) for make in (first, *others)]
    made = join(count, parts, framed=framed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(joining, "compiled", None)
        assert made.events() == join(count, parts, framed=framed).events()
    if framed:
        assert list(payloads(bytes(made.data))) == join(count, parts).events()


def test_numbers_that_follow_each_other_are_written_out_right(joiner):
    """The compiled way counts on in the text of the number before."""
    given_numbers = [*range(95, 205), 7, 8, 8, -11, -10, -9, -1, 0, 1, 999_999, 1_000_000, -(2**63), 2**63 - 1]
    joined = join(len(given_numbers), [Digits(pa.array(given_numbers, pa.int64())), b";"])
    assert b"".join(joined.events()) == b"".join(b"%d;" % number for number in given_numbers)


@pytest.mark.parametrize("size", [0, 125, 126, 127, 128, 65_535, 65_536, 200_000])
def test_a_frame_has_the_head_of_its_size(joiner, size):
    texts = [b"x" * size, b"y"]
    joined = join(2, [Text(pa.array(texts, pa.binary()))], framed=True)
    assert list(payloads(bytes(joined.data))) == texts
    assert [len(event) - len(text) for event, text in zip(joined.events(), texts, strict=True)] == [
        2 if size <= 125 else 4 if size <= 65_535 else 10,
        2,
    ]


def test_a_null_has_no_front_either(joiner):
    column = pa.array([b"1", None, b""], pa.binary())
    assert join(3, [b"<", Text(column, b"front "), b">"]).events() == [b"<front 1>", b"<>", b"<front >"]


def test_a_column_without_any_value_may_have_no_bytes(joiner):
    joined = join(2, [b"a", Text(pa.nulls(2, pa.binary()), b"f"), Text(pa.array([b"", b""], pa.binary()))])
    assert joined.events() == [b"a", b"a"]


def test_many_events_are_written_while_other_threads_run(joiner):
    count = 20_000
    column = pa.array([b"value %d" % number for number in range(count)], pa.binary())
    joined = join(count, [Digits(pa.array(range(count), pa.int64())), b" ", Text(column), b"\n"])
    assert bytes(joined.data) == b"".join(b"%d value %d\n" % (number, number) for number in range(count))
    assert joined.ends[-1] == len(joined.data)


@needs_compiled
@pytest.mark.parametrize(
    ("count", "parts"),
    [
        (0, [(0, b"x")]),
        (1, []),
        (1, [(0, b"x")] * 33),
        (1, [(9, b"x")]),
        (1, ["x"]),
        (1, [(0, "text")]),
        (2, [(2, bytes(8), 0, 1)]),
        (1, [(2, bytes(8), 0, 0)]),
        (2, [(1, bytes(4), 0, 4, [b"a"])]),
        (2, [(1, bytes(1), 0, 1, [b"a"])]),
        (1, [(1, bytes(4), 0, 2, [b"a"])]),
        (1, [(1, bytes(4), 0, 4, ["a"])]),
        (1, [(3, None, bytes(4), b"", 0, b"")]),
        (1, [(3, b"", bytes(8), b"", 0, b"")]),
        (1, [(3, None, b"\0\0\0\0\5\0\0\0", b"abc", 0, b"")]),
    ],
)
def test_the_helper_refuses_what_would_lead_it_out_of_its_buffers(count, parts):
    with pytest.raises((ValueError, TypeError)):
        joining.compiled.join(count, parts, False)


@needs_compiled
def test_a_code_without_a_value_is_left_to_arrow_which_says_so():
    with pytest.raises(pa.ArrowIndexError):
        join(1, [Chosen(pa.array([3], pa.int32()), [b"a"])])


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ([b'{"t":1}'], True),
        ([b'{"u":1}', None, b'x{"t":'], True),
        ([b'{"t"', b""], False),
        ([b"{" * 100], False),
        ([None], False),
        ([], False),
        ([b"{" * 70_000 + b'{"t":'], True),
    ],
)
def test_bytes_are_found_in_the_values_of_a_column(joiner, values, found):
    assert contains(pa.array(values, pa.binary()), b'{"t":') is found


def test_bytes_are_found_only_in_the_part_that_an_array_shows(joiner):
    column = pa.array([b'{"t":1}', b"a", b"b", b'{"t":2}'], pa.binary())
    assert not contains(column.slice(1, 2), b'{"t":')
    assert contains(column.slice(2), b'{"t":')
