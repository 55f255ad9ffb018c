"""What all tests share."""

import os
import signal
import sys

import pytest
from hypothesis import settings

settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.register_profile("exploring", deadline=None, print_blob=True)
settings.load_profile("exploring" if os.environ.get("LONG_TESTS") else "repeatable")

# A shell that runs this in the background has it ignore interrupts, and all programs that it starts with it.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    """Give the one Spark session that all tests of a run share."""
    from sparking import CONFS
    from tailrace.pipeline.spark import find_java, open_session

    session = open_session(find_java(tmp_path_factory.mktemp("java")), master="local[2]", confs=CONFS)
    yield session
    session.stop()


@pytest.fixture(scope="session", autouse=True)
def postgres_servers():
    """End the PostgreSQL servers that tests may have started to capture them."""
    yield
    if "postgres_servers" in sys.modules:
        sys.modules["postgres_servers"].stop_all()


@pytest.fixture(params=["one process", "workers"])
def one_process_and_workers(request, monkeypatch):
    """Have streams of the HTTP interface served by the process itself, and then by workers."""
    monkeypatch.setattr("web.WORKERS", int(request.param == "workers"))


def pytest_collection_modifyitems(items):
    """Begin with what takes longest, so that nobody waits for it alone at the end."""
    items.sort(key=lambda item: item.path.name != "test_pipeline_kills.py")
