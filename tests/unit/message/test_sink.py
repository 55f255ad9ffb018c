"""What a sink may be told."""

import msgspec
import pytest

from tailrace.message.base import envelope_for
from tailrace.message.outbox import OutboxOptions
from tailrace.message.shape import ShapeOptions
from tailrace.message.sink import SinkConfig, check_sink_config, read_sinks
from tailrace.message.targets import target_of
from tailrace.meta.dead_letter import OnRefused
from tailrace.model.errors import ConfigError
from tailrace.sink_url import parse

GOOD = SinkConfig("kafka://user:s3cret@broker:9092/{table}")


def test_a_sink_says_what_becomes_of_changes_and_refusals():
    made = SinkConfig("redis://h/0", "shop", ("orders",), "id > 1", ("id",), "row", OnRefused.WAIT, letters_max=5)
    assert check_sink_config("s", made) is made
    assert made.shape == ShapeOptions(("orders",), "id > 1", ("id",), "row")
    assert made.outbox == OutboxOptions(OnRefused.WAIT, 5)


def test_the_password_of_a_sink_is_not_shown():
    assert "s3cret" not in GOOD.shown_url
    assert "s3cret" not in repr(GOOD)


@pytest.mark.parametrize("url", ["typesense+http://h/{table}?api_key=k", "opensearch+http://h/{table}"])
def test_a_sink_has_the_envelope_of_its_target_unless_it_names_one(url):
    config = check_sink_config("s", SinkConfig(url))
    assert envelope_for(target_of(parse(url), "s"), config.shape.envelope) == "row"


@pytest.mark.parametrize(
    ("name", "members", "says"),
    [
        ("a b", {}, "name of a sink"),
        ("s", {"url": "delta:///lake"}, "messages cannot go to delta"),
        ("s", {"url": "nowhere"}, "not a URL"),
        ("s", {"envelope": "nothing"}, "unknown envelope"),
        ("s", {"letters_max": 0}, "letters_max"),
    ],
)
def test_what_cannot_be_run_is_refused_with_what_to_write(name, members, says):
    with pytest.raises(ConfigError, match=f"^sink {name}: .*{says}"):
        check_sink_config(name, msgspec.structs.replace(GOOD, **members))


@pytest.mark.parametrize(
    ("tables", "says"),
    [
        ({"out": {"url": "redis://h/0", "colour": "red"}}, "^sink out: .*colour"),
        ({"out": {"source": "shop"}}, "^sink out: .*url"),
        ({"out": {"url": "nowhere"}}, r"^sink out: .*kafka://HOST:9092/\{table\}"),
        ({"out": {"url": "redis://h/0", "start": "then"}}, "^sink out: .*then"),
        (["out"], "sinks.NAME"),
    ],
)
def test_an_error_in_the_configuration_of_a_sink_names_it(tables, says):
    with pytest.raises(ConfigError, match=says):
        read_sinks(tables)


def test_the_sinks_of_a_configuration_are_read_by_name():
    assert read_sinks({"out": {"url": "redis://h/0"}}) == {"out": SinkConfig("redis://h/0")}
