"""Facts about the commands that look after pipelines, without a server."""

import json

import pytest
from click.testing import CliRunner

from tailrace.cli.pipeline import pipeline
from tailrace.clock import SystemClock
from tailrace.model.errors import ConfigError
from tailrace.model.key_interval import KeyInterval
from tailrace.model.pipeline import Figures
from tailrace.pipeline.errors import LeaseError, PipelineError
from tailrace.pipeline.store import PipelineStore

SINK = "postgresql://ann:s3cret@127.0.0.1:9/shop"


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


class Place:
    """A data directory with one pipeline."""

    def __init__(self, directory):
        self.directory = directory
        self.call(
            "create", "copy", "--source", "shop", "--table", "orders", "--sink", SINK, "--server", "http://127.0.0.1:9"
        )
        self.store = PipelineStore.open(f"sqlite:///{directory / 'pipeline' / 'pipelines.db'}", SystemClock())

    def call(self, *words):
        done = CliRunner().invoke(
            pipeline, [*words, "--data-dir", str(self.directory), "--json"], catch_exceptions=False
        )
        assert done.exit_code == 0, done.output
        assert "s3cret" not in done.output
        return json.loads(done.output)

    def begin(self):
        """Have something copied."""
        lease = self.store.acquire("copy", "me", 60)
        plan = {"orders": [KeyInterval(None, None)]}
        self.store.register(lease, plan, source="shop", version=0, number_min=0, figures=Figures())
        self.store.release(lease)

    @property
    def definition(self):
        return self.store.get("copy").definition


def test_a_pipeline_is_listed_and_shown_without_its_password(place):
    assert [one["name"] for one in place.call("ls")] == ["copy"]
    assert place.call("status", "copy")["sink"] == "postgresql://ann:***@127.0.0.1:9/shop"


def test_the_way_to_server_and_sink_is_altered_at_any_time(place):
    place.begin()
    place.call("alter", "copy", "--server", "http://127.0.0.1:10", "--sink", SINK.replace("s3cret", "n3w"))
    assert place.definition.server == "http://127.0.0.1:10"
    assert place.definition.sink == "postgresql://ann:n3w@127.0.0.1:9/shop"


def test_another_sink_is_refused_when_something_is_copied(place):
    place.call("alter", "copy", "--sink", SINK.replace("/shop", "/other"))
    assert place.definition.sink.endswith("/other")
    place.begin()
    with pytest.raises(ConfigError, match="another sink"):
        place.call("alter", "copy", "--sink", SINK)


def test_a_transformation_is_altered_only_while_nobody_has_the_pipeline_and_nothing_is_copied(place):
    place.call("alter", "copy", "--transform", "SELECT * FROM changes", "--server", "http://127.0.0.1:10")
    assert (place.definition.transform, place.definition.server) == ("SELECT * FROM changes", "http://127.0.0.1:10")
    lease = place.store.acquire("copy", "worker", 60)
    with pytest.raises(LeaseError, match="worker"):
        place.call("alter", "copy", "--transform", "")
    place.store.release(lease)
    place.begin()
    with pytest.raises(PipelineError, match="pipeline reset copy"):
        place.call("alter", "copy", "--transform", "")


def test_pause_and_resume_are_kept(place):
    assert place.call("pause", "copy")["state"] == "paused"
    assert place.call("resume", "copy")["state"] == "new"
