"""What contract tests share."""

import pytest

from databases import Servers


@pytest.fixture(scope="session")
def servers():
    """Real database servers, started when the first test asks for one."""
    servers = Servers()
    yield servers
    servers.stop()
