"""What contract tests share."""

import pytest

from brokers import Brokers
from databases import Servers
from iceberg_session import stop_iceberg_session


@pytest.fixture(scope="session")
def servers():
    """Real database servers, started when the first test asks for one."""
    servers = Servers()
    yield servers
    servers.stop()


@pytest.fixture(scope="session", autouse=True)
def iceberg():
    """End the Spark with Iceberg that tests may have started."""
    yield
    stop_iceberg_session()


@pytest.fixture(scope="session")
def brokers():
    """Real brokers, started when the first test asks for one."""
    brokers = Brokers()
    yield brokers
    brokers.stop()
