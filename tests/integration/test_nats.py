"""NATS: what counts against the server's limit, and a stream that goes."""

import asyncio

import msgspec
import nats
import pytest
from nats.js.api import DiscardPolicy

import brokers
from tailrace.message.targets import target_of
from tailrace.model.errors import SinkUnavailableError
from tailrace.sink_url import parse
from target_messages import Teller

LIMIT = 2_097_152
"""Of the server of tests, in bytes."""


@pytest.fixture(scope="module")
def server():
    running = brokers.Brokers()
    yield running.get(brokers.Nats)
    running.stop()


@pytest.fixture
def target(server):
    url = f"nats://sink:{brokers.PASSWORD_IN_URL}@127.0.0.1:{server.port}/limits.{{table}}?timeout=30"
    opened = target_of(parse(url), "limits")
    yield opened
    opened.close()


async def with_stream(server, use):
    url = f"nats://127.0.0.1:{server.port}"
    connection = await nats.connect(url, user="sink", password=brokers.PASSWORD, connect_timeout=30)
    try:
        return await use(connection.jetstream(timeout=30))
    finally:
        await connection.close()


@pytest.mark.parametrize(
    ("payload", "key", "taken"),
    [(LIMIT - 5_000, 2_000, True), (LIMIT - 3_000, 6_000, False), (LIMIT - 600, 10, True), (LIMIT, 10, False)],
)
def test_headers_count_against_the_limit_of_the_server(target, payload, key, taken):
    teller = Teller()
    target.open(teller.schemas)
    large = msgspec.structs.replace(teller.change(1), value=b"x" * payload, key=b'["%s"]' % (b"k" * key))
    refusals = target.send([large, teller.change(2)], b"")
    assert [(one.place, "with its headers" in one.reason) for one in refusals] == ([] if taken else [(0, True)])


def test_a_stream_that_was_removed_is_made_anew(server, target):
    teller = Teller()
    target.open(teller.schemas)
    asyncio.run(with_stream(server, lambda stream: stream.delete_stream("tailrace-limits")))
    with pytest.raises(SinkUnavailableError, match="no stream"):
        target.send([teller.change(1)], b"")
    assert target.send([teller.change(1)], b"") == []


def test_a_stream_takes_the_same_change_from_each_of_several_sinks(server):
    asyncio.run(with_stream(server, lambda stream: stream.add_stream(name="shared", subjects=["one.*", "two.*"])))
    teller = Teller()
    messages = teller.changes(3)
    for subject in ("one", "two", "two"):
        url = f"nats://sink:{brokers.PASSWORD_IN_URL}@127.0.0.1:{server.port}/{subject}.{{table}}"
        target = target_of(parse(url), subject)
        assert target.send(messages, b"") == []
        target.close()
    info = asyncio.run(with_stream(server, lambda stream: stream.stream_info("shared")))
    assert info.state.messages == 6


def test_a_change_of_another_log_with_the_same_offset_is_not_taken_for_a_repeat(server, target):
    teller = Teller()
    teller.offset = 1000
    (message,) = teller.changes(1)
    other = msgspec.structs.replace(message.change, commit_time_us=message.change.commit_time_us + 1)

    def count():
        return asyncio.run(with_stream(server, lambda stream: stream.stream_info("tailrace-limits"))).state.messages

    target.open(teller.schemas)
    before = count()
    for one in (message, message, msgspec.structs.replace(message, change=other)):
        assert target.send([one], b"") == []
    assert count() - before == 2


def sending_to(server, stream, **limits):
    """Return the target of a sink whose stream was made with limits."""
    made = {"name": stream, "subjects": [f"{stream}.*"], **limits}
    asyncio.run(with_stream(server, lambda streams: streams.add_stream(**made)))
    url = f"nats://sink:{brokers.PASSWORD_IN_URL}@127.0.0.1:{server.port}/{stream}.{{table}}?timeout=20"
    return target_of(parse(url), stream)


def test_a_message_that_is_larger_than_the_stream_allows_is_refused_by_itself(server):
    target, teller = sending_to(server, "small", max_msg_size=1000), Teller()
    messages = [teller.change(1), teller.change(2, "x" * 2000), teller.change(3)]
    assert [(one.place, one.reason) for one in target.send(messages, b"")] == [
        (1, "it is larger than the stream allows")
    ]
    target.close()


def test_a_stream_that_is_full_and_lets_nothing_go_is_unavailable_and_says_so(server):
    target, teller = sending_to(server, "full", max_msgs=2, discard=DiscardPolicy.NEW), Teller()
    messages = teller.changes(4)
    assert target.send(messages[:2], b"") == []
    with pytest.raises(SinkUnavailableError, match="maximum messages exceeded"):
        target.send(messages[2:], b"")
    asyncio.run(with_stream(server, lambda stream: stream.purge_stream("full")))
    assert target.send(messages[2:], b"") == []
    target.close()
