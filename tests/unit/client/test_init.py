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
