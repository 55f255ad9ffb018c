"""An outbox sends changes in order, parks what is refused, and loses nothing, whatever its target does."""

import contextlib
import logging
import sqlite3
from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from changing import ORDERS, delete, insert, truncate
from tailrace.message.base import Intake
from tailrace.message.outbox import Outbox, OutboxOptions
from tailrace.message.shape import ShapeOptions
from tailrace.meta.dead_letter import LetterState, OnRefused
from tailrace.meta.dead_letter_store import DeadLetterStore
from tailrace.model.errors import ConfigError, MetadataError, SinkRefusedError, SinkUnavailableError
from tailrace.model.op import Op
from tailrace.testing.clock import FakeClock
from tailrace.testing.target import Fault, ScriptedTarget

EVERY_INTAKE = pytest.mark.parametrize("intake", list(Intake))


class Sink:
    """An outbox with its target, its letters and what its target refuses: offsets."""

    def __init__(self, intake=Intake.EACH, *, tombstones=False, shape=None, letters="sqlite://", **options):
        self.refused = set()
        self.clock = FakeClock()
        self.letters = DeadLetterStore.open(letters, self.clock)
        self.target = ScriptedTarget(intake, self._refuses, tombstones=tombstones)
        self._shape = shape or ShapeOptions()
        self._options = OutboxOptions(**options)
        self.restart()

    def restart(self):
        self.outbox = Outbox("s", self.target, self._shape, self.letters, self.clock, self._options)
        self.outbox.open([ORDERS])

    def deliver(self, *rows, mark=None, snapshot=False):
        """Deliver rows, each a key and an offset."""
        changes = [insert({"id": key, "customer": "Ann"}, offset=offset) for key, offset in rows]
        self.clock.advance(1)
        self.outbox.deliver(changes, mark or b"%d" % rows[-1][1], snapshot=snapshot)

    def offsets(self, key=None):
        """Return the offsets that have arrived, of one key or of all."""
        wanted = None if key is None else b"[%d]" % key
        return [one.change.offset for one in self.target.arrived if wanted in (None, one.change.key)]

    def parked(self):
        return {letter.change.offset: str(letter.state) for letter in self.letters.parked("s")}

    def retry(self, *offsets):
        wanted = [one.id for one in self.letters.parked("s") if one.change.offset in offsets]
        self.letters.retry("s", wanted if offsets else None)

    def drop(self, *offsets):
        self.letters.drop("s", [one.id for one in self.letters.parked("s") if one.change.offset in offsets])

    def _refuses(self, message):
        return "too large" if message.change.offset in self.refused else None


@EVERY_INTAKE
def test_changes_arrive_in_order(intake):
    sink = Sink(intake)
    sink.deliver((1, 1), (2, 2), (1, 3), (1, 4), (3, 5))
    sink.deliver((2, 6))
    assert sink.offsets() == [1, 2, 3, 4, 5, 6]
    assert sink.parked() == {}
    assert sink.outbox.messages == 6


@pytest.mark.parametrize(("intake", "batches"), [(Intake.EACH, [2, 2, 1]), (Intake.KEYED, [5]), (Intake.WHOLE, [5])])
def test_a_target_that_takes_each_message_by_itself_is_given_each_key_once_at_a_time(intake, batches):
    sink = Sink(intake)
    sink.deliver((1, 1), (2, 2), (1, 3), (2, 4), (1, 5))
    assert sink.target.batches == batches


def test_a_target_is_given_no_more_at_once_than_it_may_be():
    sink = Sink(messages_max=2)
    sink.deliver(*((key, key) for key in range(1, 6)))
    assert sink.target.batches == [2, 2, 1]
    sink = Sink(bytes_max=1)
    sink.deliver((1, 1), (2, 2))
    assert sink.target.batches == [1, 1]


@EVERY_INTAKE
def test_nothing_passes_a_truncation_in_either_direction(intake):
    sink = Sink(intake)
    rows = [insert({"id": key, "customer": "Ann"}, offset=offset) for key, offset in ((1, 1), (2, 2), (3, 4), (4, 5))]
    sink.outbox.deliver([*rows[:2], truncate(offset=3), *rows[2:]], b"m")
    assert sink.target.batches == [2, 1, 2]
    assert sink.offsets() == [1, 2, 3, 4, 5]
    assert sink.target.arrived[2].change.op is Op.TRUNCATE


@EVERY_INTAKE
def test_a_refused_change_is_parked_with_those_of_its_key_behind_it_and_the_rest_goes_on(intake):
    sink = Sink(intake)
    sink.refused = {2}
    sink.deliver((1, 1), (2, 2), (3, 3), (2, 4), (1, 5))
    sink.deliver((2, 6), (4, 7))
    assert sink.offsets() == [1, 3, 5, 7]
    assert sink.parked() == {2: "refused", 4: "behind", 6: "behind"}
    (refused, *_) = sink.letters.parked("s")
    assert refused.reason == "too large"
    assert sink.outbox.parked == 3


@EVERY_INTAKE
def test_a_change_that_follows_a_refused_one_at_once_is_not_sent_before_it(intake):
    sink = Sink(intake)
    sink.refused = {1}
    sink.deliver((1, 1), (1, 2), (1, 3))
    assert sink.offsets() == []
    assert sink.parked() == {1: "refused", 2: "behind", 3: "behind"}


@EVERY_INTAKE
def test_letters_are_sent_again_in_order_when_somebody_asks_for_it(intake):
    sink = Sink(intake)
    sink.refused = {1, 3}
    sink.deliver((1, 1), (1, 2), (1, 3), (1, 4), (2, 5))
    sink.refused = {3}
    assert sink.outbox.tend() == 0
    sink.retry()
    assert sink.outbox.tend() == 2
    assert sink.offsets(1) == [1, 2]
    assert sink.parked() == {3: "refused", 4: "behind"}
    sink.refused = set()
    sink.retry(4)
    assert sink.outbox.tend() == 2
    assert sink.offsets(1) == [1, 2, 3, 4]
    sink.deliver((1, 6))
    assert sink.offsets(1) == [1, 2, 3, 4, 6]
    assert sink.parked() == {}
    assert [message.parked for message in sink.target.arrived if message.change.offset in (1, 6)] == [True, False]


@EVERY_INTAKE
def test_a_change_that_comes_before_a_retry_is_done_is_sent_with_it(intake):
    sink = Sink(intake)
    sink.refused = {1}
    sink.deliver((1, 1))
    sink.refused = set()
    sink.retry()
    sink.deliver((1, 2))
    assert sink.outbox.tend() == 2
    assert (sink.offsets(), sink.parked()) == ([1, 2], {})


@EVERY_INTAKE
def test_a_dropped_letter_frees_its_key(intake):
    sink = Sink(intake)
    sink.refused = {1}
    sink.deliver((1, 1), (2, 2))
    sink.drop(1)
    sink.deliver((1, 3))
    assert sink.offsets() == [2, 3]


@EVERY_INTAKE
def test_a_key_stays_parked_over_a_restart(intake):
    sink = Sink(intake)
    sink.refused = {1}
    sink.deliver((1, 1), (2, 2))
    sink.restart()
    sink.deliver((1, 3), (2, 4))
    assert sink.offsets() == [2, 4]


@EVERY_INTAKE
def test_a_sink_that_waits_goes_on_when_the_letter_is_dropped(intake):
    sink = Sink(intake, on_refused=OnRefused.WAIT)
    sink.refused = {2}
    sink.deliver((1, 1), (2, 2))
    with pytest.raises(SinkUnavailableError, match="waits"):
        sink.deliver((1, 3), (2, 4), (1, 5))
    assert sink.offsets() == [1, 3]
    assert sink.parked() == {2: "refused"}
    sink.drop(2)
    sink.deliver((1, 3), (2, 4), (1, 5))
    assert sink.offsets() == [1, 3, 4, 5]


@EVERY_INTAKE
def test_a_sink_that_waits_within_a_batch_goes_on_when_the_letter_was_sent(intake):
    sink = Sink(intake, on_refused=OnRefused.WAIT)
    sink.refused = {1}
    for _ in range(2):
        with pytest.raises(SinkUnavailableError, match="waits"):
            sink.deliver((1, 1), (2, 2), (1, 3))
    assert sink.parked() == {1: "refused"}
    sink.refused = set()
    sink.retry(1)
    sink.outbox.tend()
    sink.deliver((1, 1), (2, 2), (1, 3))
    assert sink.offsets(1) == [1, 3]
    assert sink.offsets(2) == [2]


@EVERY_INTAKE
def test_a_sink_that_is_to_stop_stops_and_names_table_and_key(intake):
    sink = Sink(intake, on_refused=OnRefused.STOP)
    sink.refused = {2}
    with pytest.raises(SinkRefusedError) as refusal:
        sink.deliver((1, 1), (2, 2))
    assert (refusal.value.table, refusal.value.key, refusal.value.reason) == ("orders", "[2]", "too large")
    assert sink.parked() == {}


@EVERY_INTAKE
def test_a_sink_stops_when_there_are_as_many_letters_as_there_may_be_and_loses_nothing(intake):
    sink = Sink(intake, letters_max=1)
    sink.refused = {1, 2}
    with pytest.raises(SinkRefusedError, match="retry or drop"):
        sink.deliver((1, 1), (2, 2))
    sink.drop(1)
    sink.refused = {2}
    sink.deliver((1, 1), (2, 2))
    assert sink.offsets() == [1]
    assert sink.parked() == {2: "refused"}


@EVERY_INTAKE
@pytest.mark.parametrize("fault", list(Fault))
def test_after_a_failure_the_same_batch_goes_on_where_it_was(intake, fault):
    sink = Sink(intake)
    sink.target.faults = [None, fault] if intake is Intake.EACH else [fault]
    with pytest.raises(SinkUnavailableError):
        sink.deliver((1, 1), (2, 2), (1, 3), (2, 4))
    sink.deliver((1, 1), (2, 2), (1, 3), (2, 4))
    found = sink.offsets()
    assert list(dict.fromkeys(found)) == [1, 2, 3, 4]
    if intake is Intake.EACH:
        assert found[:2] == [1, 2]
        assert not {1, 2} & set(found[2:]), "what was settled is not sent again"
    if intake is Intake.WHOLE:
        assert found == [1, 2, 3, 4], "a target that keeps marks has each message once"


def test_a_batch_that_the_target_has_by_its_mark_is_left_out_after_a_restart():
    sink = Sink(Intake.WHOLE)
    sink.target.faults = [Fault.AFTER]
    with pytest.raises(SinkUnavailableError):
        sink.deliver((1, 1), mark=b"one")
    sink.restart()
    assert sink.outbox.mark == b"one"
    sink.deliver((1, 1), mark=b"one")
    assert sink.offsets() == [1]


def test_a_letter_that_the_target_has_by_its_mark_is_not_sent_twice():
    sink = Sink(Intake.WHOLE)
    sink.refused = {1}
    sink.deliver((1, 1), (2, 2))
    sink.refused = set()
    sink.retry()
    sink.target.faults = [Fault.AFTER]
    with pytest.raises(SinkUnavailableError):
        sink.outbox.tend()
    assert sink.parked() == {1: "retry"}
    assert sink.outbox.tend() == 0
    assert sink.offsets() == [2, 1]
    assert sink.parked() == {}
    assert sink.outbox.mark == b"2"


def test_a_letter_that_was_sent_while_the_sink_waits_is_not_sent_again_with_its_batch():
    sink = Sink(Intake.WHOLE, on_refused=OnRefused.WAIT)
    sink.refused = {1, 2}
    with pytest.raises(SinkUnavailableError, match="waits"):
        sink.deliver((1, 1), (2, 2), (1, 3))
    sink.refused = {1}
    sink.retry()
    assert sink.outbox.tend() == 1
    sink.restart()
    sink.refused = set()
    sink.retry()
    assert sink.outbox.tend() == 1
    sink.deliver((1, 1), (2, 2), (1, 3))
    assert sink.offsets() == [2, 1, 3]


def test_a_letter_that_has_arrived_is_not_sent_again_when_it_could_not_be_forgotten(tmp_path):
    sink = Sink(Intake.WHOLE, letters=f"sqlite:///{tmp_path / 'letters.db'}")
    sink.refused = {1}
    sink.deliver((1, 1), (2, 2))
    sink.refused = set()
    sink.retry()
    with contextlib.closing(sqlite3.connect(tmp_path / "letters.db", isolation_level=None)) as database:
        refuse = "CREATE TRIGGER keep BEFORE DELETE ON tailrace_dead_letter BEGIN SELECT RAISE(ABORT, 'no'); END"
        database.execute(refuse)
        with pytest.raises(MetadataError):
            sink.outbox.tend()
        database.execute("DROP TRIGGER keep")
    assert sink.outbox.tend() == 0
    assert (sink.offsets(), sink.parked()) == ([2, 1], {})


def test_a_letter_that_was_dropped_does_not_come_back_when_the_target_was_away():
    sink = Sink(Intake.WHOLE)
    sink.refused = {1, 2}
    sink.deliver((9, 0))
    sink.target.faults = [None, Fault.BEFORE]
    with pytest.raises(SinkUnavailableError):
        sink.deliver((1, 1), (2, 2), (3, 3))
    sink.drop(1)
    sink.deliver((1, 1), (2, 2), (3, 3))
    assert (sink.offsets(), sink.parked()) == ([0, 3], {2: "refused"})


@EVERY_INTAKE
@pytest.mark.parametrize("mended", [False, True])
def test_a_letter_that_was_dropped_does_not_come_back_after_a_crash(intake, mended):
    sink = Sink(intake)
    sink.refused = {1}
    sink.deliver((1, 1), (2, 2), mark=b"one")
    sink.drop(1)
    sink.restart()
    sink.refused = set() if mended else {1}
    sink.deliver((1, 1), (2, 2), (1, 4), mark=b"again")
    assert (sink.parked(), sink.offsets(1)) == ({}, [4])


@pytest.mark.parametrize("policy", [OnRefused.PARK, OnRefused.WAIT])
def test_a_batch_that_broke_off_tells_up_to_where_it_is_settled(policy):
    sink = Sink(Intake.WHOLE, messages_max=2, on_refused=policy)
    sink.target.faults = [None, None, Fault.BEFORE]
    with pytest.raises(SinkUnavailableError):
        sink.deliver((1, 11), (2, 12), (3, 13), (4, 14), (5, 15))
    sink.restart()
    assert (sink.outbox.mark, sink.outbox.settled) == (None, 14)
    sink.deliver((5, 15), mark=b"otherwise")
    assert (sink.outbox.settled, sink.offsets()) == (0, [11, 12, 13, 14, 15])


@pytest.mark.parametrize("end", [13, 15, 16])
def test_the_rest_of_a_batch_that_broke_off_may_be_cut_anywhere(end):
    rows = [(key, 10 + key) for key in range(1, 7)]
    sink = Sink(Intake.WHOLE, messages_max=2)
    sink.target.faults = [None, None, Fault.BEFORE]
    with pytest.raises(SinkUnavailableError):
        sink.deliver(*rows[:5])
    sink.restart()
    sink.deliver(*(row for row in rows if row[1] <= end), mark=b"otherwise")
    sink.deliver(*(row for row in rows if row[1] > end), (9, 19))
    assert sink.offsets() == [11, 12, 13, 14, 15, 16, 19]


def test_a_target_that_has_lost_everything_is_given_the_whole_batch_again():
    sink = Sink(Intake.WHOLE, messages_max=1)
    sink.target.faults = [None, None, Fault.BEFORE]
    with pytest.raises(SinkUnavailableError):
        sink.deliver((1, 1), (2, 2), (3, 3))
    sink.target._mark, sink.target.arrived = None, []
    sink.deliver((1, 1), (2, 2), (3, 3))
    assert sink.offsets() == [1, 2, 3]


def test_a_mark_that_is_none_of_ours_is_refused():
    sink = Sink(Intake.WHOLE)
    sink.target.send([], b"something else")
    with pytest.raises(SinkRefusedError, match="cannot be read"):
        sink.restart()


def test_a_batch_without_wanted_changes_moves_the_mark_all_the_same():
    sink = Sink(Intake.WHOLE, shape=ShapeOptions(filter="id > 10"))
    sink.deliver((1, 1))
    sink.restart()
    assert sink.outbox.mark == b"1"


@EVERY_INTAKE
def test_a_change_that_cannot_be_made_a_message_is_parked_until_the_sink_is_mended(intake):
    sink = Sink(intake, shape=ShapeOptions(filter="cel: 10 / (row.id - 2) < 100"))
    sink.deliver((1, 1), (2, 2), (3, 3), (2, 4))
    assert sink.offsets() == [1, 3]
    assert sink.parked() == {2: "refused", 4: "behind"}
    sink.retry()
    assert sink.outbox.tend() == 0
    assert sink.parked() == {2: "refused", 4: "behind"}
    sink._shape = ShapeOptions()
    sink.restart()
    sink.retry()
    assert sink.outbox.tend() == 2
    assert sink.offsets(2) == [2, 4]


def test_letters_that_the_sink_no_longer_wants_are_forgotten():
    sink = Sink()
    sink.refused = {1}
    sink.deliver((1, 1))
    sink._shape = ShapeOptions(filter="id > 10")
    sink.restart()
    sink.retry()
    sink.outbox.tend()
    assert sink.parked() == {}
    assert sink.offsets() == []


def test_rows_of_a_snapshot_are_parked_by_their_keys():
    sink = Sink()
    sink.target.refuses = lambda message: "no" if message.change.key == b"[2]" else None
    sink.deliver((1, 9), (2, 9), (3, 9), snapshot=True)
    sink.deliver((2, 10), (1, 11))
    assert [(letter.change.offset, letter.snapshot) for letter in sink.letters.parked("s")] == [(9, True), (10, False)]
    assert sink.offsets() == [9, 9, 11]


def test_a_tombstone_goes_with_its_deletion():
    sink = Sink(tombstones=True)
    changes = [delete({"id": key}, offset=key) for key in (1, 2)]
    sink.outbox.deliver(changes, b"2")
    assert sink.target.batches == [4]
    assert [message.value is None for message in sink.target.arrived] == [False, True, False, True]


def test_what_is_parked_is_told_in_the_log_without_key_and_values(caplog):
    sink = Sink()
    sink.refused = {77}
    with caplog.at_level(logging.WARNING):
        sink.deliver((4242, 77))
    (record,) = caplog.records
    assert (record.sink, record.table, record.letters, record.reason) == ("s", "orders", 1, "too large")
    assert "4242" not in str(record.__dict__)
    assert "Ann" not in str(record.__dict__)


def test_a_filter_that_does_not_fit_the_tables_is_refused_when_the_sink_is_opened():
    with pytest.raises(ConfigError):
        Sink(shape=ShapeOptions(filter="nothing = 1"))


def test_an_outbox_closes_its_target():
    sink = Sink()
    sink.outbox.close()
    assert sink.target.closed


KEYS = st.integers(1, 4)
STEPS = st.one_of(
    st.tuples(st.just("deliver"), st.lists(KEYS, min_size=1, max_size=8)),
    st.tuples(st.just("refuse"), st.frozensets(st.integers(1, 60), max_size=20)),
    st.tuples(st.just("fail"), st.lists(st.sampled_from([None, *Fault]), max_size=3)),
    st.tuples(st.just("retry"), st.none()),
    st.tuples(st.just("tend"), st.none()),
    st.tuples(st.just("restart"), st.none()),
)


@EVERY_INTAKE
@given(steps=st.lists(STEPS, max_size=25), policy=st.sampled_from([OnRefused.PARK, OnRefused.WAIT]))
@settings(max_examples=50, deadline=None)
def test_whatever_happens_each_change_arrives_or_is_parked_and_order_per_key_is_kept(intake, steps, policy):
    sink = Sink(intake, on_refused=policy)
    offset, batches = 0, []
    for step, argument in steps:
        match step:
            case "deliver":
                batches.append([(key, offset + place) for place, key in enumerate(argument, 1)])
                offset += len(argument)
            case "refuse":
                sink.refused = argument
            case "fail":
                sink.target.faults = list(argument)
            case "retry":
                sink.retry()
            case "restart":
                sink.restart()
        _work(sink, batches)
        _check(sink, intake)
    sink.refused, sink.target.faults = set(), []
    while batches or sink.parked():
        sink.retry()
        _work(sink, batches)
    assert set(sink.offsets()) == set(range(1, offset + 1))
    _check(sink, intake)
    assert LetterState.RETRY not in sink.parked().values()


def _work(sink, batches):
    """Do what whoever has an outbox does: deliver what there is, then look after the letters."""
    try:
        while batches:
            sink.deliver(*batches[0])
            batches.pop(0)
    except SinkUnavailableError:
        pass
    with contextlib.suppress(SinkUnavailableError):
        sink.outbox.tend()


def _check(sink, intake):
    by_key = defaultdict(list)
    for message in sink.target.arrived:
        by_key[message.change.key].append(message.change.offset)
    for offsets in by_key.values():
        first_arrivals = list(dict.fromkeys(offsets))
        assert first_arrivals == sorted(first_arrivals)
        if intake is Intake.WHOLE:
            assert first_arrivals == offsets, "each arrives once"


@EVERY_INTAKE
def test_what_a_target_answers_is_kept_with_the_letter_and_not_logged(intake, caplog):
    sink = Sink(intake)
    sink.refused, sink.target.answer = {2}, "customer Ann is unknown"
    with caplog.at_level(logging.DEBUG):
        sink.deliver((1, 1), (2, 2))
        [letter] = sink.letters.parked("s")
        assert letter.reason == "too large: customer Ann is unknown"
        sink.target.answer = "customer Ann is still unknown"
        sink.retry(2)
        sink.outbox.tend()
    [letter] = sink.letters.parked("s")
    assert (letter.reason, letter.tries) == ("too large: customer Ann is still unknown", 2)
    assert "Ann" not in caplog.text + str([vars(record) for record in caplog.records])


@EVERY_INTAKE
def test_a_snapshot_that_breaks_off_settles_no_changes_of_the_log(intake):
    sink = Sink(intake, messages_max=2)
    sink.deliver((1, 5), mark=b"log 5")
    sink.target.faults = [None, Fault.BEFORE]
    with pytest.raises(SinkUnavailableError):
        sink.deliver((11, 50), (12, 50), (13, 50), (14, 50), mark=b"rows", snapshot=True)
    assert sink.outbox.settled == 0
    sink.restart()
    sink.deliver((2, 30), (3, 40), (4, 60), mark=b"log 60")
    assert sink.offsets() == [5, 50, 50, 30, 40, 60]


def test_a_snapshot_that_broke_off_goes_on_where_it_was():
    sink = Sink(Intake.WHOLE, messages_max=2)
    rows = [(key, 50) for key in range(11, 16)]
    sink.target.faults = [None, Fault.BEFORE]
    with pytest.raises(SinkUnavailableError):
        sink.deliver(*rows, mark=b"rows", snapshot=True)
    sink.restart()
    sink.deliver(*rows, mark=b"rows", snapshot=True)
    assert [one.change.key for one in sink.target.arrived] == [b"[%d]" % key for key, _ in rows]
