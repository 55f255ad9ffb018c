"""Facts about invalidations that are left out: none that a reader needs, and all that nobody needs."""

from hypothesis import example, given
from hypothesis import strategies as st

from tailrace.subscription.query.given import Given
from tailrace.subscription.query.precise import VerifiedResult, is_invalidated, moved_to, passed, verify

STEPS = st.lists(
    st.tuples(st.just("commit"), st.sampled_from("ABC"), st.booleans())
    | st.tuples(st.sampled_from(["fetch", "fetch by another", "read", "begin anew"])),
    max_size=30,
)


@given(STEPS, st.booleans())
@example([("fetch",), ("commit", "B", False), ("fetch",), ("commit", "A", False), ("read",)], True)
@example([("fetch",), ("commit", "B", False), ("read",), ("commit", "A", False), ("read",)], False)
def test_who_holds_a_result_is_told_when_it_is_old_and_not_otherwise(steps, established):
    """Results follow each other in a database; a reader fetches them, reads the log, and fetches anew when told."""
    given_out, result, log, after = Given(), "A", [], 0
    verified = VerifiedResult(0, given_out.number, "A" if established else None)
    copy = None
    for kind, *more in [*steps, ("read",)]:
        if kind == "commit":
            changed, result = more[0] != result, more[0]
            log.append(changed or more[1])  # whether it can touch the result; one that does not may be held for one
        elif kind == "begin anew":
            given_out, verified = Given(), None
        elif kind.startswith("fetch"):
            given_out.note(result)
            copy = result if kind == "fetch" else copy
        else:
            former = moved_to(verified, after)
            if any(log[max(former.high, after) :]):
                given_out.note(result)  # by the run that checks it
                verified = verify(former, len(log), given_out.number, result, given_out.since(former.number))
            else:
                verified = passed(former, len(log))
            relevant = [offset for offset in range(after + 1, len(log) + 1) if log[offset - 1]]
            told = [offset for offset in relevant if is_invalidated(verified, offset)]
            if relevant and former.etag is not None and former.number >= given_out._forgotten and not told:
                assert former.etag == result
            if told and former.etag == result:
                assert given_out.since(former.number) != {result}  # somebody else got another one meanwhile
            copy = None if told else copy
            after = len(log)
            assert copy in (None, result)


def test_what_was_told_is_told_again_and_what_was_left_out_is_not():
    verified = verify(VerifiedResult(5, 1, "a"), 7, 2, "a", {"a"})
    verified = verify(passed(verified, 8), 10, 3, "b", {"b"})
    verified = verify(verify(verified, 15, 4, "b", {"b"}), 20, 5, "b", {"b"})
    assert verified.left_out == ((5, 7), (10, 20))
    told = [offset for offset in range(4, 23) if is_invalidated(verified, offset)]
    assert told == [4, 5, 8, 9, 10, 21, 22]


def test_what_was_left_out_long_ago_is_told_again():
    verified = VerifiedResult(0, 1, "a")
    for _ in range(100):
        verified = passed(verify(verified, verified.high + 1, 1, "a", set()), verified.high + 2)
    assert len(verified.left_out) == 64
    assert is_invalidated(verified, 1)
    assert not is_invalidated(verified, 199)


def test_nothing_is_left_out_where_the_result_or_what_was_given_is_not_known():
    known = VerifiedResult(5, 1, "a")
    assert verify(known, 9, 2, "a", frozenset()) == VerifiedResult(9, 2, "a", ((5, 9),))
    for etag, given_since in (("b", frozenset()), (None, frozenset()), ("a", None), ("a", {"a", "b"})):
        assert verify(known, 9, 2, etag, given_since) == VerifiedResult(9, 2, etag)
    assert is_invalidated(verify(VerifiedResult(5), 9, 2, "a", frozenset()), 9)


def test_a_reader_that_skips_changes_begins_anew():
    known = VerifiedResult(9, 1, "a", ((5, 9),))
    assert moved_to(known, 7) == known
    assert moved_to(known, 10) == VerifiedResult(10)
    assert moved_to(None, 3) == VerifiedResult(3)
