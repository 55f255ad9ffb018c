"""Facts about the process of a server."""

import json
import os
import subprocess
import sys

import pytest

from tailrace.clock import SystemClock
from tailrace.datadir import DataDirectory
from tailrace.meta.pipeline import Definition
from tailrace.pipeline.store import PipelineStore

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


SMALL = """
from tailrace.cli.process import keep_small
keep_small()
import sys
import pyarrow as pa
print(pa.default_memory_pool().backend_name, "numpy" in sys.modules, "pandas" in sys.modules)
"""


@pytest.mark.parametrize("chosen", [None, "mimalloc"])
def test_a_server_does_without_what_arrow_does_not_need(chosen):
    environment = {name: value for name, value in os.environ.items() if name != "ARROW_DEFAULT_MEMORY_POOL"}
    if chosen is not None:
        environment["ARROW_DEFAULT_MEMORY_POOL"] = chosen
    command = [sys.executable, "-c", SMALL]
    ran = subprocess.run(command, capture_output=True, check=True, text=True, env=environment)
    assert ran.stdout == f"{chosen or 'system'} False False\n"


PLAIN = """
import sys
from tailrace.cli.group import main
from tailrace.cli.process import forgo
for module in ("numpy", "pandas", "pyspark"):
    forgo(module)
sys.argv[0] = "tailrace"
main()
"""
"""The command in a plain installation, without what the extra `spark` brings."""


def plain(*arguments):
    command = [sys.executable, "-c", PLAIN, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, check=False, text=True, timeout=60)


@pytest.mark.parametrize("command", [["--help"], ["run", "--help"], ["emit", "--help"], ["dlq", "retry", "--help"]])
def test_help_of_pipelines_needs_no_extra(command):
    ran = plain("pipeline", *command)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.startswith("Usage: tailrace pipeline")


def test_pipelines_are_looked_after_without_an_extra(tmp_path):
    data = DataDirectory(tmp_path)
    store = PipelineStore.open(f"sqlite:///{data.metadata}", SystemClock())
    store.create(Definition(name="p", source="app", tables=["t"], sink="delta:///lake", server="http://127.0.0.1:1"))
    store.close()
    for command in (["ls"], ["status", "p"], ["pause", "p"], ["resume", "p"], ["dlq", "ls"]):
        ran = plain("pipeline", *command, "--data-dir", tmp_path)
        assert (ran.returncode, ran.stderr) == (0, ""), command
        assert ran.stdout


@pytest.mark.parametrize("command", [["run", "p"], ["work"], ["verify", "p"], ["rm", "p"]])
def test_a_command_without_its_extra_says_what_to_install(tmp_path, command):
    ran = plain("pipeline", *command, "--data-dir", tmp_path)
    assert (ran.returncode, ran.stdout) == (2, "")
    needs = f"pipeline {command[0]} needs pyspark: pip install '.[spark]' in the source directory of Tailrace"
    assert ran.stderr == f"tailrace: {needs}\n"
