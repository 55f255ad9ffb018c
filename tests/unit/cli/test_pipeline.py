"""Facts about the commands that look after pipelines, without a server."""

import json
import os
import signal

import pytest
from click.testing import CliRunner
from msgspec import structs

from tailrace.cli.pipeline import pipeline
from tailrace.clock import SystemClock
from tailrace.meta.pipeline import Figures, SinkState
from tailrace.model.errors import ConfigError
from tailrace.model.key_interval import KeyInterval
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
        self.store = PipelineStore.open(f"sqlite:///{directory / 'metadata.db'}", SystemClock())

    def call(self, *words):
        """Run a command; return the one thing that it tells."""
        (told,) = self.told(*words)
        return told

    def told(self, *words):
        done = CliRunner().invoke(
            pipeline, [*words, "--data-dir", str(self.directory), "--json"], catch_exceptions=False
        )
        assert done.exit_code == 0, done.output
        assert "s3cret" not in done.output
        return [json.loads(line) for line in done.stdout.splitlines()]

    def begin(self):
        """Have something copied."""
        lease = self.store.acquire("copy", "me", 60)
        plan = {"orders": [KeyInterval(None, None)]}
        self.store.register(lease, plan, source="shop", version=0, sink_state=SinkState.EMPTY, figures=Figures())
        self.store.release(lease)

    @property
    def definition(self):
        return self.store.get("copy").definition


def test_a_pipeline_is_listed_and_shown_without_its_password(place):
    assert [one["name"] for one in place.call("ls")] == ["copy"]
    assert place.call("status", "copy")["sink"] == "postgresql://ann:***@127.0.0.1:9/shop"


def test_a_pipeline_is_not_made_with_a_server_that_has_no_address(place):
    for server in ("nowhere:1", "http://ann:s3cret@there"):
        with pytest.raises(ConfigError, match="server address"):
            place.call("create", "other", "--table", "t", "--sink", SINK, "--server", server)
        with pytest.raises(ConfigError, match="server address"):
            place.call("alter", "copy", "--server", server)
    assert [one["name"] for one in place.call("ls")] == ["copy"]


def test_pipelines_are_listed_though_one_of_them_has_no_server(place):
    place.store.create(structs.replace(place.definition, name="odd", server="nowhere:1"))
    assert [one["name"] for one in place.call("ls")] == ["copy", "odd"]


def test_what_a_file_leaves_out_is_as_on_the_command_line(place, monkeypatch):
    file = place.directory / "lake.toml"
    file.write_text('tables = ["orders"]\nsink = "delta:///lake"\n')
    monkeypatch.setenv("TAILRACE_SERVER", "http://127.0.0.1:9")
    place.call("create", "--file", str(file))
    made = place.store.get("lake").definition
    assert (made.source, made.server) == ("default", "http://127.0.0.1:9")


@pytest.mark.parametrize("options", [("other",), ("--mode", "append"), ("--server", "http://127.0.0.1:9")])
def test_options_beside_a_file_are_refused(place, options):
    file = place.directory / "lake.toml"
    file.write_text('tables = ["orders"]\nsink = "delta:///lake"\n')
    words = ["create", *options, "--file", str(file), "--data-dir", str(place.directory)]
    done = CliRunner().invoke(pipeline, words)
    assert (done.exit_code, "--file is the whole definition" in done.output) == (2, True)


def test_the_way_to_server_and_sink_is_altered_at_any_time(place):
    place.begin()
    place.call("alter", "copy", "--server", "http://127.0.0.1:10", "--sink", SINK.replace("s3cret", "n3w"))
    assert place.definition.server == "http://127.0.0.1:10"
    assert place.definition.sink == "postgresql://ann:n3w@127.0.0.1:9/shop"


def test_another_sink_is_refused_when_something_is_copied(place):
    place.call("alter", "copy", "--sink", SINK.replace("/shop", "/other"))
    assert place.definition.sink.endswith("/other")
    place.begin()
    with pytest.raises(ConfigError, match="different sink"):
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


def test_types_are_declared_and_altered_column_by_column(place):
    place.call("alter", "copy", "--type", "orders.total=decimal(12,2)", "--type", "orders.paid=boolean")
    place.call("alter", "copy", "--type", "orders.paid=", "--type", "orders.at=timestamp")
    assert place.definition.types == {"orders.total": "decimal(12,2)", "orders.at": "timestamp"}


def test_how_a_pipeline_is_operated_is_altered_at_any_time(place):
    place.begin()
    place.call("alter", "copy", "--trigger", "1.5m", "--batch-changes", "500", "--batch-bytes", "64MB")
    made = place.definition
    assert (made.trigger_s, made.batch_changes, made.batch_bytes) == (90.0, 500, 64_000_000)
    place.call("alter", "copy", "--trigger", "0s")
    assert (place.definition.trigger_s, place.definition.batch_changes) == (0.0, 500)
    with pytest.raises(ConfigError, match="a postgresql sink needs no maintenance"):
        place.call("alter", "copy", "--maintain-every", "1d")


def test_a_lake_is_made_with_a_schedule_partitions_and_properties(place):
    words = ["--table", "orders", "--sink", "delta:///lake/{table}", "--server", "http://127.0.0.1:9"]
    options = ["--maintain-every", "1d", "--partition-by", "orders.country", "--property", "delta.appendOnly=false"]
    place.call("create", "lake", *words, *options)
    made = place.store.get("lake").definition
    assert (made.maintain_every_s, made.partition_by) == (86_400.0, ("orders.country",))
    assert made.properties == {"delta.appendOnly": "false"}


@pytest.mark.parametrize(
    "options", [("--trigger", "soon"), ("--batch-bytes", "1TB"), ("--property", "x"), ("--batch-changes", "0")]
)
def test_what_is_no_duration_size_or_property_is_refused(place, options):
    done = CliRunner().invoke(pipeline, ["alter", "copy", *options, "--data-dir", str(place.directory)])
    assert done.exit_code == 2, done.output


@pytest.fixture
def _signals():
    """Give the process back the handlers of signals that it had."""
    kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in kept.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("_signals")
def test_a_run_to_the_head_that_is_stopped_or_paused_before_it_is_there_has_failed(place, monkeypatch):
    pytest.importorskip("pyspark")
    from tailrace.pipeline.job import Job

    monkeypatch.setattr(Job, "run", lambda self, name, **_: None)
    assert place.told("run", "copy", "--once")[-1]["event"] == "ended"
    monkeypatch.setattr(Job, "run", lambda self, name, **_: os.kill(os.getpid(), signal.SIGTERM))
    assert place.told("run", "copy")[-1]["event"] == "ended"
    with pytest.raises(PipelineError, match="'copy' was stopped before it was done"):
        place.told("run", "copy", "--once")
    monkeypatch.setattr(Job, "run", lambda self, name, **_: self._store.pause(name, paused=True))
    with pytest.raises(PipelineError, match="'copy' was stopped before it was done"):
        place.told("run", "copy", "--once")


def test_pause_and_resume_are_kept(place):
    assert place.call("pause", "copy")["state"] == "paused"
    assert place.call("resume", "copy")["state"] == "new"


def test_a_pipeline_says_its_mode_also_where_nobody_chose_one(place):
    assert place.call("status", "copy")["mode"] == "current"
