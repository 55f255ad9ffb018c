"""Bounding the frames of a client."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpc_serving import (
    CONTINUATION,
    DATA,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PING,
    PREFACE,
    PRIORITY,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    frame,
)
from tailrace.delivery.grpc.http2.meter import FrameMeter, FrameRefusedError

MANY = 30_000


def measured(meter, data, time_s=1.0):
    """Measure all of the data, turn by turn; return the sizes of the turns."""
    turns = []
    while data:
        turns.append(meter.measure(data, time_s))
        data = data[turns[-1] :]
    return turns


@pytest.mark.parametrize(
    "flood",
    [
        frame(SETTINGS),
        frame(PING, body=bytes(8)),
        frame(RST_STREAM, 0, 1, bytes(4)),
        frame(PRIORITY, 0, 1, bytes(5)),
        frame(CONTINUATION, 0, 1, b"x"),
        frame(WINDOW_UPDATE, body=bytes(4)),
        frame(GOAWAY, body=bytes(8)),
        frame(DATA, 0, 1),
        frame(0x77, 0, 0, b"?"),
    ],
    ids=["settings", "ping", "reset", "priority", "continuation", "window", "goaway", "empty data", "unknown"],
)
def test_a_flood_is_refused_at_some_point(flood):
    meter = FrameMeter(1 << 14, 256)
    with pytest.raises(FrameRefusedError, match="too_many"):
        measured(meter, PREFACE + flood * MANY)


@pytest.mark.parametrize(
    "frames", [frame(HEADERS, 4, 1, b"x"), frame(DATA, 0, 1, b"x"), frame(DATA, END_STREAM, 1)], ids=str
)
def test_calls_and_their_data_are_not_counted(frames):
    measured(FrameMeter(1 << 14, 256), PREFACE + frames * MANY)


def test_a_hundred_pings_at_once_are_nothing():
    measured(FrameMeter(1 << 14, 256), PREFACE + frame(PING, body=bytes(8)) * 100)


def test_a_client_that_pings_for_what_it_gets_may_go_on():
    meter = FrameMeter(1 << 14, 256)
    measured(meter, PREFACE)
    for _ in range(MANY // 100):
        meter.sent(1)
        measured(meter, frame(PING, body=bytes(8)) + frame(WINDOW_UPDATE, body=bytes(4)) * 4)


def test_time_gives_back_what_was_used():
    meter = FrameMeter(1 << 14, 256)
    measured(meter, PREFACE)
    for time_s in range(1, 1000):
        measured(meter, frame(PING, body=bytes(8)) * 4, float(time_s))


def test_a_frame_that_is_too_large_is_refused_before_it_arrives():
    meter = FrameMeter(100, 256)
    with pytest.raises(FrameRefusedError, match="101 bytes"):
        meter.measure(PREFACE + frame(DATA, 0, 1, bytes(101))[:9], 1.0)


def test_a_turn_ends_between_frames():
    meter = FrameMeter(100, 3)
    one = frame(DATA, 0, 1, b"12")
    assert measured(meter, PREFACE + one * 8) == [len(PREFACE) + 3 * len(one), 3 * len(one), 2 * len(one)]


@given(st.lists(st.integers(0, 40), max_size=60), st.integers(1, 5))
def test_any_split_is_measured_alike(steps, frames_a_turn):
    kinds = [frame(DATA, 0, 1, bytes(n)) for n in range(1, 8)] + [frame(SETTINGS)] * 101
    data = PREFACE + b"".join(kinds)
    meter = FrameMeter(100, frames_a_turn)
    place = 0
    for step in steps:
        measured(meter, data[place : place + step])
        place += step
    with pytest.raises(FrameRefusedError, match="too_many_settings"):
        measured(meter, data[place:] or frame(SETTINGS))
