"""What errors of Kafka mean."""

import pytest
from confluent_kafka import KafkaError
from hypothesis import given
from hypothesis import strategies as st

from tailrace.message.target.kafka_failure import REFUSED, KafkaBatch, KafkaFailure, error_of, failed_places
from tailrace.model.errors import SinkRefusedError, SinkUnavailableError
from target_messages import Teller


@pytest.mark.parametrize(
    ("codes", "transactions", "kind"),
    [
        ([KafkaError._TRANSPORT], False, SinkUnavailableError),
        ([KafkaError._MSG_TIMED_OUT, KafkaError._ALL_BROKERS_DOWN], True, SinkUnavailableError),
        ([KafkaError._MSG_TIMED_OUT, KafkaError._AUTHENTICATION], False, SinkRefusedError),
        ([KafkaError.TOPIC_AUTHORIZATION_FAILED], False, SinkRefusedError),
        ([KafkaError.PRODUCER_FENCED], True, SinkRefusedError),
        ([KafkaError.PRODUCER_FENCED], False, SinkUnavailableError),
        ([KafkaError.INVALID_REPLICATION_FACTOR], False, SinkRefusedError),
    ],
)
def test_the_most_telling_error_counts(codes, transactions, kind):
    assert type(error_of(codes, "sink", "host:9092", transactions=transactions)) is kind


@given(st.lists(st.integers(0, 3), max_size=30), st.data())
def test_the_last_messages_of_each_key_are_those_that_failed(keys, data):
    names = {place: ("orders", b"%d" % key) for place, key in enumerate(keys)}
    failing = {name: data.draw(st.integers(0, list(names.values()).count(name))) for name in set(names.values())}
    failures, expected = [], set()
    for name, count in failing.items():
        mine = [place for place in names if names[place] == name]
        for place in mine[len(mine) - count :]:
            failures.append(KafkaFailure(*name, 1000 + place))
            expected.add(place)
    found = failed_places(failures, list(names), names)
    assert list(found) == sorted(expected)
    assert all(code == 1000 + place for place, code in found.items())


def test_what_is_behind_a_refused_message_in_its_key_is_refused_with_it():
    teller = Teller("orders", "lines")
    messages = teller.changes(6, keys=2) + teller.changes(2, keys=2, table=1)
    batch = KafkaBatch(messages, {schema.table: schema.table.name for schema in teller.schemas})
    batch.refuse(2, KafkaError.INVALID_RECORD)
    assert [refusal.place for refusal in batch.keyed_refusals()] == [2, 4]
    assert [refusal.reason for refusal in batch.refusals()] == [REFUSED[KafkaError.INVALID_RECORD]]
