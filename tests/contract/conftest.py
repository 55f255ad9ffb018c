"""What contract tests share."""

import pytest

from brokers import Brokers
from databases import Servers


@pytest.fixture(scope="session")
def servers():
    """Real database servers, started when the first test asks for one."""
    servers = Servers()
    yield servers
    servers.stop()


@pytest.fixture(scope="session")
def brokers():
    """Real brokers, started when the first test asks for one."""
    brokers = Brokers()
    yield brokers
    brokers.stop()
