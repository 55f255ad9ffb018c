"""Servers for the acceptance tests."""

import pytest

from brokers import Brokers
from serving import Server


@pytest.fixture(scope="session")
def brokers():
    """Real brokers, started when the first test asks for one."""
    brokers = Brokers()
    yield brokers
    brokers.stop()


@pytest.fixture
def serve(tmp_path):
    """Start servers; whatever still runs when the test ends is killed."""
    servers = []

    def start(*arguments, data_dir=None, wait=True, env=None):
        server = Server(data_dir or tmp_path / "data", *map(str, arguments), env=env)
        servers.append(server)
        return server.wait_ready() if wait else server

    yield start
    for server in servers:
        server.kill()
