"""The public names of the client."""

import subprocess
import sys

import pytest

import tailrace.client


@pytest.mark.parametrize("name", tailrace.client.__all__)
def test_each_public_name_is_there(name):
    assert getattr(tailrace.client, name) is not None


def test_a_name_that_is_not_there_is_told():
    with pytest.raises(AttributeError, match="no attribute 'Cleint'"):
        tailrace.client.Cleint  # noqa: B018


def test_errors_are_imported_without_the_rest():
    code = "import sys, tailrace.client.errors; sys.exit('httpx' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_client_needs_no_library_of_the_server():
    server_only = "apsw pyarrow sqlalchemy sqlglot starlette uvicorn uvloop h2 google.protobuf prometheus_client jwt"
    code = f"""
import sys, tailrace.client
for name in tailrace.client.__all__:
    getattr(tailrace.client, name)
print(*[name for name in {server_only.split()} if name in sys.modules])
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == ""
