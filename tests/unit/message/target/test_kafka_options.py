"""What the URL of a Kafka sink says."""

import pytest

from tailrace.message.target.kafka_options import kafka_options, topic_of
from tailrace.model.errors import ConfigError
from tailrace.model.table import TableName
from tailrace.sink_url import parse


def options(text):
    return kafka_options(parse(text))


def test_a_short_url_means_what_is_usual():
    found = options("kafka://broker/{table}")
    assert found.brokers == "broker:9092"
    assert found.client()["security.protocol"] == "plaintext"
    settings = found.producer("sink", 1000, alone=False)
    assert settings["acks"] == "all"
    assert settings["enable.idempotence"]
    assert "transactional.id" not in settings


def test_several_brokers_are_named_with_commas():
    assert options("kafka://a:1,b,c:3/{table}").brokers == "a:1,b:9092,c:3"


def test_a_user_means_tls_unless_said_otherwise_and_the_password_is_not_shown():
    found = options("kafka://ann:s%2Cecret@a:1,b:2/t?mechanism=SCRAM-SHA-512&ca=/ca.pem")
    client = found.client()
    assert client["security.protocol"] == "sasl_ssl"
    assert (client["sasl.username"], client["sasl.password"]) == ("ann", "s,ecret")
    assert client["ssl.ca.location"] == "/ca.pem"
    assert "ecret" not in repr(found)


def test_transactions_have_the_name_of_the_sink():
    settings = options("kafka://a/t?transactions=true&timeout=5").producer("sink", 1000, alone=True)
    assert settings["transactional.id"] == "sink"
    assert settings["transaction.timeout.ms"] == 5000


@pytest.mark.parametrize(
    "text",
    [
        "kafka:///t",
        "kafka://a/",
        "kafka://a/{column}",
        "kafka://a/t?acks=0",
        "kafka://a/t?compression=rar",
        "kafka://a/t?partitions=0",
        "kafka://a/t?security=sasl_ssl",
        "kafka://ann:secret@a/t?security=ssl",
        "kafka://a/t?transactions=perhaps",
        "kafka://a/t?timeout=0.1",
        "kafka://a/t?timeout=1&linger=900",
    ],
)
def test_what_makes_no_sense_is_refused(text):
    with pytest.raises(ConfigError) as refused:
        options(text)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("template", "name", "topic"),
    [
        ("{table}", "orders", "orders"),
        ("cdc.{source}.{table}", "orders", "cdc.shop.orders"),
        ("{table}", "Größe & Maß", "Gr__e___Ma_"),
    ],
)
def test_topics_have_characters_that_kafka_knows(template, name, topic):
    assert topic_of(template, TableName("shop", name)) == topic


def test_a_name_that_is_too_long_for_a_topic_is_refused():
    with pytest.raises(ConfigError, match="cannot be the name of a topic"):
        topic_of("{table}", TableName("shop", "x" * 250))
