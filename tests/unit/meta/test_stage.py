"""Facts about the stages of a pipeline."""

import itertools

import pytest

from tailrace.meta.pipeline import MOVES, Stage, moved
from tailrace.model.errors import MetadataError

FORWARD = {
    (Stage.REGISTER, Stage.SNAPSHOT),
    (Stage.SNAPSHOT, Stage.INCREMENTAL_LOG),
    (Stage.REGISTER, Stage.FAILED),
    (Stage.SNAPSHOT, Stage.FAILED),
    (Stage.INCREMENTAL_LOG, Stage.FAILED),
}


def test_the_numbers_and_names_are_those_of_the_seed():
    assert [(int(stage), stage.word) for stage in Stage] == [
        (0, "register"),
        (1, "snapshot"),
        (2, "incremental_log"),
        (3, "failed"),
    ]
    assert set(MOVES) == set(Stage)


@pytest.mark.parametrize(("now", "to"), list(itertools.product(Stage, Stage)))
def test_a_range_stays_or_moves_forward_and_never_back(now, to):
    if now is to or (now, to) in FORWARD:
        assert moved(now, to) is to
    else:
        with pytest.raises(MetadataError, match=f"from stage {now.word} to {to.word}"):
            moved(now, to)
