"""What the Kafka target does beyond the contract of all targets: refusals by the broker, back-pressure, partitions."""

import json
import time

import msgspec
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

import kafka_reading
from brokers import Kafka
from tailrace.message.target import kafka_options
from tailrace.message.targets import target_of
from tailrace.model.errors import SinkRefusedError, SinkUnavailableError
from tailrace.sink_url import parse
from target_messages import Teller

SCHEMA = {"type": "object", "properties": {"value": {"type": "object", "required": ["op"]}}}


class CheckingKafka(Kafka):
    """Refuses messages of some topics that are no objects with an op."""

    def command(self):
        schemas = self.directory / "schemas"
        schemas.mkdir(exist_ok=True)
        for topic in ("orders", "lines", "whole"):
            (schemas / f"{topic}.json").write_text(json.dumps(SCHEMA))
        return [*super().command(), "--schema-registry", "file://./schemas"]


@pytest.fixture(scope="module")
def brokers():
    started = {}

    def get(kind):
        if reason := kind.missing():
            pytest.skip(reason)
        if kind not in started:
            started[kind] = kind().start()
        started[kind].proxy.mend()
        return started[kind]

    yield get
    for broker in started.values():
        broker.stop()


def opened(broker, schemas, topic="{table}", name="sink", options="", timeout_s=60):
    target = target_of(parse(f"kafka://127.0.0.1:{broker.proxy.port}/{topic}?timeout={timeout_s}{options}"), name)
    target.open(schemas)
    return target


def ids(broker, topic):
    return [found.id for found in kafka_reading.read(broker.proxy.port, topic)]


def bad(message):
    return msgspec.structs.replace(message, value=b'{"none": 1}')


def test_what_the_broker_refuses_is_found_among_what_was_sent_with_it_and_order_per_key_is_kept(brokers):
    broker = brokers(CheckingKafka)
    teller = Teller("orders", "lines", "free")
    target = opened(broker, teller.schemas)
    messages = [message for _ in range(40) for table in range(3) for message in teller.changes(3, table=table)]
    given = [bad(message) if number in {30, 31, 200} else message for number, message in enumerate(messages)]
    refused = {refusal.place for refusal in target.send(given, b"")}
    keys = {}
    for number, message in enumerate(given):
        name = (message.change.schema.table, message.key)
        if number in {30, 31, 200} and message.change.schema.table.name != "free":
            keys.setdefault(name, number)
    expected = {
        number
        for number, message in enumerate(given)
        if number >= keys.get((message.change.schema.table, message.key), len(given))
    }
    assert {30, 31, 200} & refused
    assert refused == expected
    for number, schema in enumerate(teller.schemas):
        left = [
            message.id
            for place, message in enumerate(given)
            if message.change.schema == schema and place not in refused
        ]
        assert ids(broker, schema.table.name) == left, number
    more = teller.changes(20)
    assert not target.send(more, b"")
    assert ids(broker, "orders")[-20:] == [message.id for message in more]
    target.close()


def test_a_transaction_with_a_refused_message_is_aborted_and_the_message_named(brokers):
    broker = brokers(CheckingKafka)
    teller = Teller("whole")
    target = opened(broker, teller.schemas, name="whole", options="&transactions=true")
    messages = teller.changes(30)
    given = [bad(message) if number == 17 else message for number, message in enumerate(messages)]
    assert [refusal.place for refusal in target.send(given, b"30")] == [17]
    assert target.mark() is None
    assert not target.send([*messages[:17], *messages[18:]], b"30")
    assert target.mark() == b"30"
    target.close()


def test_of_two_processes_that_send_for_one_sink_in_transactions_the_older_is_refused(brokers):
    broker = brokers(Kafka)
    teller = Teller()
    older, newer = (opened(broker, teller.schemas, "fenced.{table}", "fenced", "&transactions=true") for _ in range(2))
    assert not newer.send(teller.changes(2), b"new")
    with pytest.raises(SinkRefusedError, match="another process runs the sink 'fenced'"):
        older.send(teller.changes(2), b"old")
    assert newer.mark() == b"new"
    older.close()
    newer.close()


def test_a_broker_that_is_slow_fills_the_queue_and_that_slows_us(brokers, monkeypatch):
    monkeypatch.setattr(kafka_options, "_QUEUE_MESSAGES_MAX", 50)
    broker = brokers(Kafka)
    teller = Teller()
    target = opened(broker, teller.schemas, "slow.{table}")
    broker.proxy.delay_s = 0.02
    messages = teller.changes(2000)
    begin = time.monotonic()
    assert not target.send(messages, b"")
    assert time.monotonic() - begin > 0.1
    broker.proxy.mend()
    assert ids(broker, "slow.orders") == [message.id for message in messages]
    target.close()


def test_a_broker_that_never_makes_room_is_unavailable_in_time(brokers, monkeypatch):
    monkeypatch.setattr(kafka_options, "_QUEUE_MESSAGES_MAX", 50)
    broker = brokers(Kafka)
    teller = Teller()
    target = opened(broker, teller.schemas, "full.{table}", timeout_s=4)
    assert not target.send(teller.changes(1), b"")
    broker.proxy.silent = True
    begin = time.monotonic()
    with pytest.raises(SinkUnavailableError):
        target.send(teller.changes(500), b"")
    assert time.monotonic() - begin < 40
    target.close()


def test_topics_are_made_with_partitions_and_a_key_stays_in_one_of_them(brokers):
    broker = brokers(Kafka)
    teller = Teller()
    target = opened(broker, teller.schemas, "wide.{source}.{table}", options="&partitions=4&replication=1")
    messages = teller.changes(200, keys=20)
    assert not target.send(messages, b"")
    target.close()
    parts = [kafka_reading.read(broker.proxy.port, "wide.shop.orders", partition) for partition in range(4)]
    assert sum(bool(part) for part in parts) > 1
    assert sorted(found.id for part in parts for found in part) == sorted(message.id for message in messages)
    for part in parts:
        of_part = {found.key for found in part}
        assert [found.id for found in part] == [message.id for message in messages if message.key in of_part]


def test_compressed_messages_arrive(brokers):
    broker = brokers(Kafka)
    teller = Teller()
    for codec in ("lz4", "zstd"):
        target = opened(broker, teller.schemas, f"{codec}.{{table}}", options=f"&compression={codec}")
        messages = teller.changes(50)
        assert not target.send(messages, b"")
        target.close()
        assert ids(broker, f"{codec}.orders") == [message.id for message in messages]


def test_topics_that_are_there_are_used_as_they_are(brokers):
    broker = brokers(Kafka)
    admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{broker.proxy.port}"})
    for made in admin.create_topics([NewTopic("mine", 1, 1)]).values():
        made.result(60)
    teller = Teller("orders", "lines")
    target = opened(broker, teller.schemas, "mine")
    messages = teller.changes(3) + teller.changes(3, table=1)
    assert not target.send(messages, b"")
    target.close()
    assert ids(broker, "mine") == [message.id for message in messages]


@pytest.fixture
def mock():
    """The cluster that the library brings: three brokers, of which each leads some partitions."""
    producer = Producer({"bootstrap.servers": "none", "test.mock.num.brokers": 3, "log_level": 0})
    found = producer.list_topics(timeout=60)
    for topic in ("orders", kafka_options.MARKS):
        producer.list_topics(topic, timeout=60)
    yield ",".join(f"127.0.0.1:{broker.port}" for broker in found.brokers.values())
    del producer


def test_a_cluster_of_several_brokers_is_written_to(mock):
    teller = Teller()
    for options, mark in (("", None), ("&transactions=true", b"300")):
        target = target_of(parse(f"kafka://{mock}/orders?timeout=60{options}"), "sink")
        target.open(teller.schemas)
        for count in (100, 200, 300):
            assert not target.send(teller.changes(100), b"%d" % count)
        assert target.mark() == mark
        target.close()


@pytest.mark.timeout(300)
def test_a_broker_that_has_lost_everything_is_written_to_again_long_before_messages_time_out():
    if reason := Kafka.missing():
        pytest.skip(reason)
    broker, teller = Kafka().start(), Teller()
    try:
        target = opened(broker, teller.schemas, timeout_s=280)
        assert not target.send(teller.changes(10), b"")
        broker.kill()
        broker.start()  # it keeps everything in memory alone
        messages = teller.changes(10)
        with pytest.raises(SinkUnavailableError, match="have lost the state of the sink"):
            target.send(messages, b"")
        target.open(teller.schemas)
        assert not target.send(messages, b"")
        found = ids(broker, "orders")  # of one partition
        assert found
        assert set(found) <= {message.id for message in messages}
        target.close()
    finally:
        broker.stop()
