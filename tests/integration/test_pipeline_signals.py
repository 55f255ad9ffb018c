"""Facts about work beside the main thread, which waits for signals. As processes: signals are theirs."""

import signal
import subprocess
import sys

import pytest

PROGRAM = """
import sys, threading
from tailrace.cli.pipeline_run import Stop, apart
stop, never = Stop(), threading.Event()
def work():
    print("working", flush=True)
    while not stop.requested():
        never.wait(0.01)
    print("asked", flush=True)
    if sys.argv[1] == "long":
        never.wait(60)
    raise SystemExit(3)
apart(work, stop)
"""


@pytest.fixture
def started():
    processes = []

    def start(how):
        processes.append(subprocess.Popen([sys.executable, "-c", PROGRAM, how], stdout=subprocess.PIPE, text=True))
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_seen_by_the_work_which_ends_as_it_wants(started, number):
    process = started("short")
    assert process.stdout.readline() == "working\n"
    process.send_signal(number)
    assert process.stdout.readline() == "asked\n"
    assert process.wait(60) == 3


def test_signals_at_once_are_one_and_a_later_one_ends_the_process(started):
    process = started("long")
    assert process.stdout.readline() == "working\n"
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == "asked\n"
    for _ in range(200):  # a second after the first at the earliest
        process.send_signal(signal.SIGTERM)
        try:
            assert process.wait(0.1) == 130
            break
        except subprocess.TimeoutExpired:
            continue
    assert process.returncode == 130
