"""Facts about terms."""

from tailrace.interface.coordinode.shard import Terms


def test_a_commit_is_of_the_last_term_that_began_before_it():
    terms = Terms([(1, 1), (5, 3), (9, 4)])
    assert [terms.of(index) for index in (1, 4, 5, 8, 9, 100)] == [1, 1, 3, 3, 4, 4]
    assert terms.current == 4


def test_a_commit_before_all_terms_is_of_the_first():
    assert Terms([(5, 2)]).of(1) == 2
