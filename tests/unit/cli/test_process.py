"""Facts about the process of a server."""

import json
import subprocess
import sys

import pytest

FACTS = """
import gc, json, resource, sys
soft, hard = map(int, sys.argv[1:])
limit = resource.RLIMIT_NOFILE
resource.setrlimit(limit, (soft, hard))
from tailrace.cli.process import prepare_process
prepare_process()
print(json.dumps([resource.getrlimit(limit), gc.get_threshold(), gc.get_freeze_count(), gc.isenabled()]))
"""


def prepared(soft, hard):
    """Return limits, thresholds, frozen objects and whether garbage is collected, in a process of its own."""
    command = [sys.executable, "-c", FACTS, str(soft), str(hard)]
    return json.loads(subprocess.run(command, capture_output=True, check=True).stdout)


@pytest.mark.parametrize("soft", [64, 1000])
def test_a_server_takes_all_descriptors_that_the_system_admits(soft):
    limits, *_ = prepared(soft, 1000)
    assert limits == [1000, 1000]


def test_garbage_is_collected_less_often_but_collected():
    _, thresholds, frozen, enabled = prepared(64, 64)
    assert thresholds[0] > 700
    assert frozen > 1000
    assert enabled


def test_a_process_can_do_without_a_module_that_is_installed():
    script = """
from tailrace.cli.process import forgo
forgo("colorsys")
import fractions
try:
    import colorsys
except ModuleNotFoundError as error:
    print(error.name)
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, text=True)
    assert ran.stdout == "colorsys\n"


def test_a_command_without_its_extra_says_what_to_install():
    script = """
import sys
from tailrace.cli.group import main
from tailrace.cli.process import forgo
forgo("numpy")
sys.argv = ["tailrace", "pipeline", "ls"]
main()
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False, text=True)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr == "tailrace: pipeline needs numpy: pip install 'tailrace[spark]'\n"
