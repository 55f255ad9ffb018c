"""What contract tests share."""

import pytest

from brokers import Brokers
from databases import MariaDb, Postgres, Servers
from iceberg_session import stop_iceberg_session


@pytest.fixture(scope="session")
def servers():
    """Real database servers, started when the first test asks for one."""
    servers = Servers()
    yield servers
    servers.stop()


@pytest.fixture(params=["sqlite", MariaDb, Postgres], ids=["sqlite", "mariadb", "postgresql"])
def metadata_url(request, tmp_path, servers):
    """An empty metadata database of each kind, as users name it."""
    return (
        f"sqlite:///{tmp_path / 'meta.db'}" if request.param == "sqlite" else servers.get(request.param).metadata_url()
    )


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
