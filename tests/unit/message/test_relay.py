"""A relay passes on what its reader has, and tries again while one side is away."""

import threading
import time

import pytest

from changing import ORDERS, insert
from serving import wait_until
from tailrace.clock import SystemClock
from tailrace.message.base import BusyError, Intake
from tailrace.message.outbox import Outbox, OutboxOptions
from tailrace.message.relay import Arrived, Relay, RelayOptions
from tailrace.message.shape import ShapeOptions
from tailrace.meta.dead_letter import OnRefused
from tailrace.meta.dead_letter_store import DeadLetterStore
from tailrace.meta.sink_store import SinkState
from tailrace.model.errors import (
    BehindHorizonError,
    ConfigError,
    LogClosedError,
    SinkRefusedError,
    SinkUnavailableError,
    SourceUnavailableError,
)
from tailrace.retry import Backoff
from tailrace.testing.clock import FakeClock
from tailrace.testing.target import Fault, ScriptedTarget

WHOLE = ShapeOptions()
QUICK = RelayOptions(idle_s=0.01, backoff=Backoff(first_s=0.001, longest_s=0.002))


def arrived(*offsets, key=None):
    changes = [insert({"id": key or offset, "customer": "Ann"}, offset=offset) for offset in offsets]
    return Arrived(changes, offsets[-1])


class ScriptedReader:
    """Hands over what a script has: batches, None for a quiet time, or errors."""

    def __init__(self, *script, cursor=0, owner="1", tables=(ORDERS,)):
        self.there = list(tables)
        self.owner = owner
        self.script = list(script)
        self.cursor = cursor
        self.opened = []
        self.after = 0
        self.away = 0
        self.closed = False

    def open(self, after):
        self.opened.append(after)
        self.after = max(self.cursor, after)
        return self.owner

    def tables(self):
        return self.there

    def next(self, timeout_s):
        if not self.script:
            threading.Event().wait(timeout_s)
            return None
        step = self.script.pop(0)
        if isinstance(step, Exception):
            raise step
        return step

    def acknowledge(self, through):
        if self.away:
            self.away -= 1
            raise SourceUnavailableError("the server is away")
        self.cursor = through

    def close(self):
        self.closed = True


class Running:
    """A relay in a thread."""

    def __init__(self, tmp_path, reader, target, options=QUICK, policy=OnRefused.PARK, shape=WHOLE, **outbox):
        self.told = []
        self.reader, self.target = reader, target
        self.letters = DeadLetterStore.open(f"sqlite:///{tmp_path / 'letters.db'}", SystemClock())
        self.outbox = Outbox("s", target, shape, self.letters, SystemClock(), OutboxOptions(policy, **outbox))
        self.relay = Relay(self.outbox, reader, self.told.append, SystemClock(), options)
        self.error = None
        self.thread = threading.Thread(target=self._run)
        self.use = self.relay.run

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.relay.stop()
        self.thread.join(30)
        assert not self.thread.is_alive()
        self.letters.close()

    def _run(self):
        try:
            self.use()
        except Exception as error:
            self.error = error

    def offsets(self):
        return [message.change.offset for message in self.target.arrived]

    def ended(self):
        self.thread.join(30)
        return self.error


def test_changes_are_sent_and_acknowledged_when_the_target_has_them(tmp_path):
    reader = ScriptedReader(arrived(1, 2), None, Arrived((), 7), arrived(9))
    with Running(tmp_path, reader, ScriptedTarget()) as running:
        wait_until(lambda: reader.cursor == 9, "all acknowledged")
        assert running.offsets() == [1, 2, 9]
    assert reader.closed
    assert running.target.closed
    assert running.error is None
    last = running.told[-1]
    assert (last.state, last.offset, last.messages, last.parked) == (SinkState.STOPPED, 9, 3, 0)


@pytest.mark.parametrize("intake", list(Intake))
def test_target_and_source_are_tried_again_while_they_are_away(tmp_path, intake):
    away = SourceUnavailableError("the server is away")
    reader = ScriptedReader(arrived(1), away, away, arrived(2, 3))
    with Running(tmp_path, reader, ScriptedTarget(intake, faults=[Fault.BEFORE, Fault.AFTER, None])) as running:
        wait_until(lambda: reader.cursor == 3, "all acknowledged")
    assert list(dict.fromkeys(running.offsets())) == [1, 2, 3]
    assert {figures.state for figures in running.told} >= {SinkState.WAITING, SinkState.STOPPED}


def test_a_server_that_is_away_is_told_later_how_far_the_sink_is(tmp_path):
    reader = ScriptedReader(arrived(1), arrived(2))
    reader.away = 3
    with Running(tmp_path, reader, ScriptedTarget()) as running:
        wait_until(lambda: reader.cursor == 2, "all acknowledged")
    assert (running.offsets(), running.error) == ([1, 2], None)


def test_a_target_that_keeps_marks_says_where_to_go_on(tmp_path):
    target = ScriptedTarget(Intake.WHOLE)
    with Running(tmp_path, ScriptedReader(arrived(1, 2)), target) as running:
        wait_until(lambda: running.reader.cursor == 2, "acknowledged")
    again = ScriptedReader()
    with Running(tmp_path, again, target):
        wait_until(lambda: again.opened == [0, 2], "opened behind the mark")


def test_a_mark_of_a_sink_that_was_removed_means_nothing_to_the_next_of_its_name(tmp_path):
    target = ScriptedTarget(Intake.WHOLE)
    with Running(tmp_path, ScriptedReader(arrived(1, 2)), target) as running:
        wait_until(lambda: running.reader.cursor == 2, "acknowledged")
    anew = ScriptedReader(arrived(1, 2), owner="2")
    with Running(tmp_path, anew, target) as running:
        wait_until(lambda: anew.cursor == 2, "acknowledged")
    assert anew.opened == [0]
    assert running.offsets() == [1, 2, 1, 2]


def test_a_batch_that_broke_off_may_be_cut_otherwise_later_and_each_message_still_arrives_once(tmp_path):
    target = ScriptedTarget(Intake.WHOLE, faults=[None, None, *[Fault.BEFORE] * 100_000])
    with Running(tmp_path, ScriptedReader(arrived(1), arrived(2, 3, 4, 5)), target, messages_max=2) as running:
        wait_until(lambda: running.told and running.told[-1].state is SinkState.WAITING, "waiting")
    assert running.offsets() == [1, 2, 3]
    target.faults = []
    again = ScriptedReader(arrived(4, 5), cursor=1)
    with Running(tmp_path, again, target) as running:
        wait_until(lambda: again.cursor == 5, "acknowledged")
    assert again.opened == [0, 3]
    assert running.offsets() == [1, 2, 3, 4, 5]


def test_what_the_target_has_when_a_relay_is_stopped_is_acknowledged(tmp_path):
    class Stopping(ScriptedTarget):
        def send(self, messages, mark):
            running.relay.stop()
            return super().send(messages, mark)

    reader = ScriptedReader(arrived(1, 2))
    running = Running(tmp_path, reader, Stopping())
    with running:
        assert running.ended() is None
    assert (running.offsets(), reader.cursor) == ([1, 2], 2)


def test_a_relay_tells_where_it_is_before_anything_comes(tmp_path):
    with Running(tmp_path, ScriptedReader(cursor=41), ScriptedTarget()) as running:
        wait_until(lambda: running.told, "told")
        assert running.told[-1].offset == 41


@pytest.mark.parametrize("error", [ConfigError("the filter"), SinkRefusedError("the password")])
def test_a_sink_that_cannot_be_as_it_is_configured_leaves_no_subscription(tmp_path, error):
    class Refusing(ScriptedTarget):
        def open(self, schemas):
            raise error

    with Running(tmp_path, ScriptedReader(), Refusing()) as running:
        assert running.ended() is error
    assert running.reader.opened == []


def test_a_relay_says_which_tables_it_waits_for_until_they_are_there(tmp_path, caplog):
    reader = ScriptedReader(tables=())
    with Running(tmp_path, reader, ScriptedTarget(), shape=ShapeOptions(("orders",))) as running:
        wait_until(lambda: running.told and running.told[-1].problem, "told")
        assert "no table orders yet" in running.told[-1].problem
        reader.there = [ORDERS]
        wait_until(lambda: not running.told[-1].problem, "told that it is there")
    (said,) = [one for one in caplog.records if one.getMessage() == "sink waits for tables"]
    assert (said.levelname, said.sink, said.tables) == ("WARNING", "s", "orders")


def test_a_relay_ends_when_a_filter_does_not_fit_a_table_that_appears(tmp_path):
    reader = ScriptedReader(tables=())
    with Running(tmp_path, reader, ScriptedTarget(), shape=ShapeOptions(filter="nosuch > 1")) as running:
        wait_until(lambda: running.told, "opened")
        reader.there = [ORDERS]
        assert isinstance(running.ended(), ConfigError)
    assert "nosuch" in running.told[-1].problem


def test_a_relay_that_is_kept_running_goes_on_after_a_failure_that_may_pass(tmp_path):
    options = RelayOptions(0.01, None, QUICK.backoff, QUICK.backoff)
    reader = ScriptedReader(arrived(1), LogClosedError("secret"), arrived(2), KeyError("secret"), arrived(3))
    with Running(tmp_path, reader, ScriptedTarget(), options) as running:
        wait_until(lambda: running.error is not None, "ended")
    running = Running(tmp_path, reader, running.target, options)
    running.use = running.relay.keep_running
    with running:
        wait_until(lambda: reader.cursor == 3, "acknowledged")
    assert (running.offsets(), running.error) == ([1, 2, 3], None)
    (failed,) = [figures for figures in running.told if figures.state is SinkState.FAILED]
    assert failed.problem.startswith("unexpected KeyError in next, line ")
    assert "secret" not in failed.problem


def test_a_relay_that_is_kept_running_ends_with_what_does_not_pass(tmp_path):
    reader = ScriptedReader(BehindHorizonError(requested=1, horizon=5))
    running = Running(tmp_path, reader, ScriptedTarget())
    running.use = running.relay.keep_running
    with running:
        assert isinstance(running.ended(), BehindHorizonError)
    assert "the oldest is 5" in running.told[-1].problem
    assert "`tailrace sink rm s`" in running.told[-1].problem


def test_a_relay_ends_when_one_side_is_away_for_too_long(tmp_path):
    options = RelayOptions(0.01, 0.0, QUICK.backoff)
    target = ScriptedTarget(faults=[Fault.BEFORE] * 1000)
    with Running(tmp_path, ScriptedReader(arrived(1)), target, options) as running:
        assert isinstance(running.ended(), SinkUnavailableError)
    assert running.told[-1].state is SinkState.FAILED
    assert running.reader.cursor == 0


@pytest.mark.parametrize(
    ("policy", "script", "kind"),
    [
        (OnRefused.STOP, arrived(1), SinkRefusedError),
        (OnRefused.PARK, BehindHorizonError(requested=1, horizon=5), BehindHorizonError),
    ],
)
def test_a_relay_ends_with_what_nobody_but_people_can_mend(tmp_path, policy, script, kind):
    target = ScriptedTarget(refuses=lambda _: "no")
    with Running(tmp_path, ScriptedReader(script), target, policy=policy) as running:
        assert isinstance(running.ended(), kind)
    assert (running.told[-1].state, running.reader.cursor) == (SinkState.FAILED, 0)
    assert running.told[-1].problem


def test_letters_are_sent_again_while_nothing_comes(tmp_path):
    target = ScriptedTarget(refuses=lambda message: "no" if message.change.offset == 1 else None)
    reader = ScriptedReader(arrived(1), arrived(2))
    with Running(tmp_path, reader, target) as running:
        wait_until(lambda: reader.cursor == 2, "acknowledged")
        assert running.offsets() == [2]
        target.refuses = lambda _: None
        running.letters.retry("s")
        wait_until(lambda: running.offsets() == [2, 1], "the letter sent")


def test_a_sink_that_waits_goes_on_when_its_letter_is_retried(tmp_path):
    target = ScriptedTarget(refuses=lambda message: "no" if message.change.offset == 1 else None)
    reader = ScriptedReader(arrived(1, key=5), arrived(2, key=5))
    with Running(tmp_path, reader, target, policy=OnRefused.WAIT) as running:
        wait_until(lambda: running.told and running.told[-1].state is SinkState.WAITING, "waiting")
        assert reader.cursor == 1
        target.refuses = lambda _: None
        running.letters.retry("s")
        wait_until(lambda: reader.cursor == 2, "acknowledged")
    assert running.offsets() == [1, 2]


def test_a_relay_that_is_stopped_while_it_waits_acknowledges_nothing(tmp_path):
    reader = ScriptedReader(arrived(1))
    with Running(tmp_path, reader, ScriptedTarget(faults=[Fault.BEFORE] * 100_000)) as running:
        wait_until(lambda: running.told and running.told[-1].state is SinkState.WAITING, "waiting")
    assert (reader.cursor, running.error) == (0, None)


class Costly(ScriptedTarget):
    """Takes seconds of a clock for each batch."""

    def __init__(self, clock, cost_s, **script):
        super().__init__(**script)
        self.clock, self.cost_s = clock, cost_s

    def send(self, messages, mark):
        self.clock.advance(self.cost_s)
        return super().send(messages, mark)


@pytest.mark.parametrize(
    "faults", [[Fault.BEFORE], [None, Fault.BEFORE, None, Fault.BEFORE]], ids=["a long batch", "one by one"]
)
def test_an_outage_begins_with_a_failure_and_ends_when_something_arrives(tmp_path, faults):
    clock = FakeClock()
    target = Costly(clock, 6, faults=faults)
    running = Running(tmp_path, ScriptedReader(arrived(1, 2, 3)), target, messages_max=1)
    running.relay = Relay(running.outbox, running.reader, running.told.append, clock, RelayOptions(0.01, 5.0))
    running.use = running.relay.run
    with running:
        wait_until(lambda: running.error or running.reader.cursor == 3, "all acknowledged")
    assert (running.error, running.offsets()) == (None, [1, 2, 3])


def test_a_target_that_asks_for_it_is_left_alone(tmp_path):
    times_s = []

    class Asking(ScriptedTarget):
        def send(self, messages, mark):
            times_s.append(time.monotonic())
            if len(times_s) == 1:
                raise BusyError("busy", 0.3)
            return super().send(messages, mark)

    with Running(tmp_path, ScriptedReader(arrived(1)), Asking()) as running:
        wait_until(lambda: running.reader.cursor == 1, "acknowledged")
    first, second = times_s
    assert second - first >= 0.3


def test_a_sink_that_is_ended_before_it_ever_reached_its_target_has_a_subscription(tmp_path):
    class Away(ScriptedTarget):
        def open(self, schemas):
            raise SinkUnavailableError("away")

    with Running(tmp_path, ScriptedReader(), Away()) as running:
        wait_until(lambda: len(running.told) > 3, "waiting")
    assert running.reader.opened == [0]


def test_a_sink_with_too_many_letters_goes_on_when_they_are_retried(tmp_path):
    target = ScriptedTarget(refuses=lambda _: "no")
    with Running(tmp_path, ScriptedReader(arrived(1), arrived(2)), target, letters_max=1) as running:
        assert "retry or drop" in str(running.ended())
    target.refuses = lambda message: None if message.change.offset == 1 else "no"
    again = ScriptedReader(arrived(2), cursor=1)
    running = Running(tmp_path, again, target, letters_max=1)
    running.letters.retry("s")
    with running:
        wait_until(lambda: running.error or again.cursor == 2, "acknowledged")
        assert [letter.change.offset for letter in running.letters.parked("s")] == [2]
    assert (running.error, running.offsets()) == (None, [1])


def test_a_letter_does_not_overtake_an_earlier_change_of_its_key_that_a_crash_kept_back(tmp_path):
    refuses = lambda message: "no" if message.change.offset == 3 else None  # noqa: E731
    target = ScriptedTarget(Intake.WHOLE, refuses, faults=[None, *[Fault.BEFORE] * 100_000])
    with Running(tmp_path, ScriptedReader(arrived(2, 3, key=5)), target) as running:
        wait_until(lambda: running.told and running.told[-1].state is SinkState.WAITING, "waiting")
    target.faults, target.refuses = [], lambda _: None
    again = ScriptedReader(arrived(1, key=9), None, arrived(2, 3, key=5))
    running = Running(tmp_path, again, target)
    assert running.letters.retry("s") == 1
    with running:
        wait_until(lambda: again.cursor == 3 and not running.letters.parked("s"), "all sent")
    assert running.offsets() == [1, 2, 3]


def test_a_relay_ends_when_another_process_has_taken_its_sink(tmp_path):
    taken = SinkRefusedError("another process has begun")

    def tell(figures):
        if running.target.arrived:
            raise taken

    running = Running(tmp_path, ScriptedReader(arrived(1)), ScriptedTarget())
    running.relay = Relay(running.outbox, running.reader, tell, SystemClock(), QUICK)
    running.use = running.relay.keep_running
    with running:
        assert running.ended() is taken


def test_pauses_stay_short_while_a_target_takes_something_between_failures(tmp_path):
    class Stumbling(ScriptedTarget):
        failures = 0

        def send(self, messages, mark):
            if self.failures < 30:
                self.failures += 1
                error = BusyError("busy")
                error.arrived = 1
                raise error
            return super().send(messages, mark)

    options = RelayOptions(0.01, None, Backoff(first_s=0.001, longest_s=1000.0))
    with Running(tmp_path, ScriptedReader(arrived(1)), Stumbling(), options) as running:
        wait_until(lambda: running.reader.cursor == 1, "acknowledged")


def test_a_slow_target_is_given_a_few_changes_at_a_time_each_acknowledged(tmp_path):
    class Noting(ScriptedReader):
        def acknowledge(self, through):
            super().acknowledge(through)
            acknowledged.append(through)

    acknowledged, target = [], ScriptedTarget(changes_max=2)
    reader = Noting(Arrived(arrived(1, 2, 3, 4, 5).changes, 7), arrived(8, 9))
    with Running(tmp_path, reader, target) as running:
        wait_until(lambda: reader.cursor == 9, "acknowledged")
    assert (running.offsets(), target.batches, acknowledged) == ([1, 2, 3, 4, 5, 8, 9], [2, 2, 1, 2], [2, 4, 7, 9])


def test_a_relay_that_is_stopped_gives_a_slow_target_no_more(tmp_path):
    class Stopping(ScriptedTarget):
        def send(self, messages, mark):
            running.relay.stop()
            return super().send(messages, mark)

    reader = ScriptedReader(arrived(1, 2, 3, 4, 5))
    running = Running(tmp_path, reader, Stopping(changes_max=2))
    with running:
        assert running.ended() is None
    assert (running.offsets(), reader.cursor) == ([1, 2], 2)
