"""RabbitMQ: where messages go by default, and what no queue takes."""

import asyncio
import os
import subprocess

import aio_pika
import msgspec
import pytest

import brokers
from tailrace.message.targets import target_of
from tailrace.model.errors import SinkRefusedError, SinkUnavailableError
from tailrace.sink_url import parse
from target_messages import Teller


@pytest.fixture(scope="module")
def server():
    running = brokers.Brokers()
    yield running.get(brokers.RabbitMq)
    running.stop()


@pytest.fixture
def targets(server):
    opened = []

    def build(path, password=brokers.PASSWORD_IN_URL):
        opened.append(target_of(parse(f"amqp://sink:{password}@127.0.0.1:{server.port}/{path}"), "orders"))
        return opened[-1]

    yield build
    for one in opened:
        one.close()


async def with_channel(server, use):
    async with await aio_pika.connect(
        host="127.0.0.1", port=server.port, login="sink", password=brokers.PASSWORD
    ) as connection:
        return await use(await connection.channel())


def test_by_default_messages_are_persistent_in_durable_quorum_queues_named_like_their_tables(server, targets):
    teller, target = Teller(), targets("?timeout=20")
    target.open(teller.schemas)
    assert target.send(teller.changes(3), b"") == []

    async def look(channel):
        await channel.declare_queue("orders", durable=True, arguments={"x-queue-type": "quorum"})
        return [await (await channel.get_queue("orders")).get(no_ack=True) for _ in range(3)]

    found = asyncio.run(with_channel(server, look))
    assert [one.message_id for one in found] == ["shop/1", "shop/2", "shop/3"]
    assert {one.delivery_mode for one in found} == {aio_pika.DeliveryMode.PERSISTENT}


def test_a_message_to_an_exchange_is_refused_where_no_queue_takes_it(server, targets):
    async def bind(channel):
        queue = await channel.declare_queue("bound", durable=True)
        await queue.bind("amq.topic", "changes.orders")

    asyncio.run(with_channel(server, bind))
    teller, target = Teller("orders", "lines"), targets("?exchange=amq.topic&queue=changes.{table}&timeout=20")
    target.open(teller.schemas)
    refusals = target.send([teller.change(1), teller.change(1, table=1), teller.change(2)], b"")
    assert [(one.place, one.reason) for one in refusals] == [(1, "no queue takes it: bind one to the exchange")]


@pytest.mark.parametrize(("path", "why"), [("nowhere", "virtual host"), ("?exchange=none", "no exchange")])
def test_a_place_that_is_not_there_is_refused(targets, path, why):
    with pytest.raises(SinkRefusedError, match=why):
        targets(path).open(Teller().schemas)


def count_in(server, queue):
    async def look(channel):
        return (await channel.get_queue(queue)).declaration_result.message_count

    return asyncio.run(with_channel(server, look))


def test_a_queue_that_was_removed_is_made_anew_and_nothing_is_refused(server, targets):
    teller, target = Teller(), targets("?queue=gone.{table}&queue_type=classic&timeout=20")
    target.open(teller.schemas)
    asyncio.run(with_channel(server, lambda channel: channel.queue_delete("gone.orders")))
    messages = teller.changes(2)
    with pytest.raises(SinkUnavailableError, match="declaring it again"):
        target.send(messages, b"")
    assert target.send(messages, b"") == []
    assert count_in(server, "gone.orders") == 2


def test_a_server_that_takes_smaller_messages_than_the_sink_knows_refuses_those_alone(server, targets):
    teller, target = Teller(), targets("?queue=small.{table}&queue_type=classic&timeout=20")
    target.open(teller.schemas)
    messages = teller.changes(3)
    messages[1] = msgspec.structs.replace(messages[1], value=b"x" * 2_000_001)
    with pytest.raises(SinkUnavailableError, match="above 2000000 bytes"):
        target.send(messages, b"")
    assert [(one.place, one.reason) for one in target.send(messages, b"")] == [
        (1, "it is larger than the server allows")
    ]


def test_while_a_server_is_short_of_memory_no_more_than_one_message_is_tried_at_a_time(server, targets):
    teller, target = Teller(), targets("?queue=alarm.{table}&queue_type=classic&timeout=5")
    target.open(teller.schemas)
    messages = teller.changes(50, keys=50)
    control(server, "set_vm_memory_high_watermark", "0.000001")
    try:
        for _ in range(3):
            with pytest.raises(SinkUnavailableError, match="did not confirm in time: check its alarms"):
                target.send(messages, b"")
    finally:
        control(server, "set_vm_memory_high_watermark", "0.4")
    assert target.send(messages, b"") == []
    assert 50 <= count_in(server, "alarm.orders") <= 50 + 50 + 2


def control(server, *arguments):
    command = [str(brokers.RABBITMQ.with_name("rabbitmqctl")), *arguments]
    subprocess.run(command, check=True, capture_output=True, env=os.environ | server.environment(), timeout=60)
